CREATE TABLE `tool_services` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`scheme` text NOT NULL,
	`service_id` text NOT NULL,
	`display_name` text,
	`description` text,
	`config` text NOT NULL,
	`enabled` integer NOT NULL,
	`version` integer DEFAULT 1 NOT NULL,
	`discovered` text,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `tool_services_tenant_scheme_service` ON `tool_services` (`tenant`,`scheme`,`service_id`);--> statement-breakpoint
CREATE INDEX `tool_services_tenant_id` ON `tool_services` (`tenant`,`id`);