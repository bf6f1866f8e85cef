ALTER TABLE `vcp_tasks` ADD `called_at` integer;--> statement-breakpoint
CREATE INDEX `vcp_tasks_called` ON `vcp_tasks` (`called_at`) WHERE called_at is not null and done_at is null;--> statement-breakpoint
CREATE INDEX `sys_ai_plugin_eager` ON `sys_ai_plugin` (`tenant`) WHERE type = 'VCP' AND status = '0' AND json_valid(execution_config)
  AND execution_config ->> '$.vcp.manifest.pluginType' = 'static' AND execution_config ->> '$.vcp.manifest.eager' = 1;