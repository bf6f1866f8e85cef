CREATE TABLE `api_keys` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`hash` text NOT NULL,
	`name` text NOT NULL,
	`role` text NOT NULL,
	`scopes` text NOT NULL,
	`tools` text,
	`user_id` text,
	`business_unit` text,
	`requests_per_minute` integer,
	`concurrent_requests` integer,
	`hint` text NOT NULL,
	`expires_at` integer,
	`revoked_at` integer,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `api_keys_hash` ON `api_keys` (`hash`);--> statement-breakpoint
CREATE INDEX `api_keys_tenant_id` ON `api_keys` (`tenant`,`id`);--> statement-breakpoint
CREATE TABLE `budget_windows` (
	`tenant` text NOT NULL,
	`budget_id` text NOT NULL,
	`window_start` integer NOT NULL,
	`tokens` integer NOT NULL,
	`micros` integer NOT NULL,
	PRIMARY KEY(`tenant`, `budget_id`)
);
--> statement-breakpoint
CREATE TABLE `budgets` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`scope` text NOT NULL,
	`scope_id` text NOT NULL,
	`period` text NOT NULL,
	`limit_tokens` integer,
	`limit_micros` integer,
	`enabled` integer NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `budgets_scope_period` ON `budgets` (`tenant`,`scope`,`scope_id`,`period`);--> statement-breakpoint
CREATE INDEX `budgets_tenant_id` ON `budgets` (`tenant`,`id`);--> statement-breakpoint
CREATE TABLE `calls` (
	`tenant` text NOT NULL,
	`id` text NOT NULL,
	`kind` text NOT NULL,
	`parent_id` text,
	`root_id` text,
	`session_id` text,
	`uri` text NOT NULL,
	`tool` text NOT NULL,
	`tool_hash` text,
	`effect` text NOT NULL,
	`repeat` text NOT NULL,
	`state` text NOT NULL,
	`attempt` integer NOT NULL,
	`lease_until` integer,
	`run_at` integer,
	`deadline` integer,
	`async` integer NOT NULL,
	`caller_id` text NOT NULL,
	`user_id` text,
	`caller_chain` text NOT NULL,
	`route` text NOT NULL,
	`idempotency_key` text,
	`input_hash` text NOT NULL,
	`input` text,
	`input_view` text NOT NULL,
	`effect_key` text,
	`outcome_text` text,
	`outcome_media_type` text,
	`outcome_bytes` integer,
	`outcome_blob_key` text,
	`error` text,
	`usage` text,
	`cost` text,
	`reserved_tokens` integer DEFAULT 0 NOT NULL,
	`reserved_micros` integer DEFAULT 0 NOT NULL,
	`slots` integer NOT NULL,
	`cancel_requested` integer DEFAULT false NOT NULL,
	`approval` text,
	`delivery` text NOT NULL,
	`request_id` text NOT NULL,
	`trace_id` text NOT NULL,
	`created_at` integer NOT NULL,
	`started_at` integer,
	`finished_at` integer,
	`sent_at` integer NOT NULL,
	`write_token` text,
	`taken_over` integer DEFAULT false NOT NULL,
	PRIMARY KEY(`tenant`, `id`)
);
--> statement-breakpoint
CREATE UNIQUE INDEX `calls_idempotency_key` ON `calls` (`tenant`,`caller_id`,`route`,`idempotency_key`) WHERE idempotency_key is not null;--> statement-breakpoint
CREATE UNIQUE INDEX `calls_effect_key` ON `calls` (`tenant`,`root_id`,`effect_key`) WHERE effect_key is not null;--> statement-breakpoint
CREATE INDEX `calls_tenant_created` ON `calls` (`tenant`,`created_at`,`id`);--> statement-breakpoint
CREATE INDEX `calls_session` ON `calls` (`tenant`,`session_id`,`delivery`) WHERE session_id is not null;--> statement-breakpoint
CREATE INDEX `calls_parent` ON `calls` (`tenant`,`parent_id`) WHERE parent_id is not null;--> statement-breakpoint
CREATE INDEX `calls_caller` ON `calls` (`tenant`,`caller_id`,`created_at`,`id`);--> statement-breakpoint
CREATE INDEX `calls_request` ON `calls` (`tenant`,`request_id`);--> statement-breakpoint
CREATE INDEX `calls_running` ON `calls` (`tenant`,`lease_until`,`kind`,`caller_id`,`slots`,`user_id`,`reserved_tokens`,`reserved_micros`) WHERE state = 'running';--> statement-breakpoint
CREATE INDEX `calls_waiting` ON `calls` (`tenant`,`created_at`,`id`) WHERE state = 'input_required';--> statement-breakpoint
CREATE INDEX `calls_queued` ON `calls` (`sent_at`) WHERE state = 'queued';--> statement-breakpoint
CREATE INDEX `calls_retry` ON `calls` (`tenant`,`caller_id`,`input_hash`,`created_at`) WHERE idempotency_key IS NULL AND parent_id IS NULL AND state <> 'running'
  AND (state <> 'completed' OR outcome_media_type IS NOT NULL);--> statement-breakpoint
CREATE INDEX `calls_keyed` ON `calls` (`created_at`) WHERE idempotency_key is not null;--> statement-breakpoint
CREATE INDEX `calls_sealed` ON `calls` (`finished_at`) WHERE input is not null and finished_at is not null;--> statement-breakpoint
CREATE TABLE `jwt_issuers` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`issuer` text NOT NULL,
	`audience` text NOT NULL,
	`jwks_url` text NOT NULL,
	`claims` text NOT NULL,
	`default_role` text NOT NULL,
	`default_scopes` text NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `jwt_issuers_tenant_issuer_audience` ON `jwt_issuers` (`tenant`,`issuer`,`audience`);--> statement-breakpoint
CREATE INDEX `jwt_issuers_issuer_audience` ON `jwt_issuers` (`issuer`,`audience`);--> statement-breakpoint
CREATE TABLE `kept_turns` (
	`tenant` text NOT NULL,
	`caller_id` text NOT NULL,
	`key` text NOT NULL,
	`sealed` text NOT NULL,
	`expires_at` integer NOT NULL,
	PRIMARY KEY(`tenant`, `caller_id`, `key`)
);
--> statement-breakpoint
CREATE INDEX `kept_turns_expires` ON `kept_turns` (`expires_at`);--> statement-breakpoint
CREATE TABLE `oauth_grants` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`kind` text NOT NULL,
	`user_id` text DEFAULT '' NOT NULL,
	`identity` text NOT NULL,
	`tool` text NOT NULL,
	`generation` integer DEFAULT 0 NOT NULL,
	`sealed` text,
	`scope` text,
	`renewable` integer DEFAULT false NOT NULL,
	`expires_at` integer,
	`lease_by` text,
	`lease_until` integer,
	`link_hash` text,
	`link_sealed` text,
	`link_until` integer,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `oauth_grants_owner` ON `oauth_grants` (`tenant`,`user_id`,`identity`);--> statement-breakpoint
CREATE UNIQUE INDEX `oauth_grants_link` ON `oauth_grants` (`tenant`,`link_hash`) WHERE link_hash is not null;--> statement-breakpoint
CREATE INDEX `oauth_grants_listed` ON `oauth_grants` (`tenant`,`kind`,`id`);--> statement-breakpoint
CREATE INDEX `oauth_grants_updated` ON `oauth_grants` (`updated_at`);--> statement-breakpoint
CREATE TABLE `price_tables` (
	`tenant` text PRIMARY KEY NOT NULL,
	`prices` text NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE TABLE `providers` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`kind` text NOT NULL,
	`base_url` text NOT NULL,
	`credential` text,
	`models` text NOT NULL,
	`passthrough_models` integer NOT NULL,
	`priority` integer NOT NULL,
	`enabled` integer NOT NULL,
	`max_attempts` integer NOT NULL,
	`timeout_ms` integer NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `providers_tenant_name` ON `providers` (`tenant`,`name`);--> statement-breakpoint
CREATE INDEX `providers_tenant_id` ON `providers` (`tenant`,`id`);--> statement-breakpoint
CREATE TABLE `queue_messages` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`queue` text NOT NULL,
	`call_id` text NOT NULL,
	`visible_at` integer NOT NULL,
	`receives` integer DEFAULT 0 NOT NULL,
	`receipt` text,
	`dead_at` integer
);
--> statement-breakpoint
CREATE INDEX `queue_messages_visible` ON `queue_messages` (`queue`,`visible_at`) WHERE dead_at is null;--> statement-breakpoint
CREATE INDEX `queue_messages_receipt` ON `queue_messages` (`receipt`) WHERE receipt is not null;--> statement-breakpoint
CREATE INDEX `queue_messages_dead` ON `queue_messages` (`queue`,`dead_at`) WHERE dead_at is not null;--> statement-breakpoint
CREATE TABLE `rate_windows` (
	`tenant` text NOT NULL,
	`scope` text NOT NULL,
	`window_start` integer NOT NULL,
	`count` integer NOT NULL,
	`request` text,
	`verdict` text,
	`caller_id` text,
	`existing` text,
	`slots` integer,
	`over_budget` text,
	PRIMARY KEY(`tenant`, `scope`)
);
--> statement-breakpoint
CREATE TABLE `replies` (
	`tenant` text NOT NULL,
	`key` text NOT NULL,
	`payload` text NOT NULL,
	`delivered_by` text NOT NULL,
	`taken_by` text,
	`created_at` integer NOT NULL,
	PRIMARY KEY(`tenant`, `key`)
);
--> statement-breakpoint
CREATE INDEX `replies_created` ON `replies` (`created_at`);--> statement-breakpoint
CREATE TABLE `sessions` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`caller_id` text NOT NULL,
	`created_by` text NOT NULL,
	`created_at` integer NOT NULL,
	`last_used_at` integer NOT NULL,
	`expired_at` integer,
	`claimed_until` integer,
	`cleared_at` integer
);
--> statement-breakpoint
CREATE INDEX `sessions_tenant_created` ON `sessions` (`tenant`,`created_at`,`id`);--> statement-breakpoint
CREATE INDEX `sessions_idle` ON `sessions` (`tenant`,`last_used_at`) WHERE cleared_at is null;--> statement-breakpoint
CREATE INDEX `sessions_cleared` ON `sessions` (`cleared_at`) WHERE cleared_at is not null;--> statement-breakpoint
CREATE TABLE `shards` (
	`id` text PRIMARY KEY NOT NULL,
	`url` text,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE TABLE `sys_ai_plugin` (
	`plugin_id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`tenant` text,
	`name` text NOT NULL,
	`title` text,
	`description` text NOT NULL,
	`icon_url` text,
	`type` text NOT NULL,
	`parameter_schema` text NOT NULL,
	`execution_config` text NOT NULL,
	`status` text DEFAULT '0' NOT NULL,
	`required_credentials` text NOT NULL,
	`sensitive` integer DEFAULT false NOT NULL,
	`roles` text NOT NULL,
	`hash` text NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `sys_ai_plugin_tenant_name` ON `sys_ai_plugin` (`tenant`,`name`);--> statement-breakpoint
CREATE UNIQUE INDEX `sys_ai_plugin_native_name` ON `sys_ai_plugin` (`name`) WHERE tenant is null;--> statement-breakpoint
CREATE INDEX `sys_ai_plugin_tenant_id` ON `sys_ai_plugin` (`tenant`,`plugin_id`);--> statement-breakpoint
CREATE TABLE `sys_user_credential` (
	`credential_id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`user_id` text DEFAULT '' NOT NULL,
	`version` integer NOT NULL,
	`sealed` text NOT NULL,
	`last_used_at` integer,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `sys_user_credential_tenant_name_user` ON `sys_user_credential` (`tenant`,`name`,`user_id`);--> statement-breakpoint
CREATE TABLE `tenants` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`status` text DEFAULT 'active' NOT NULL,
	`config_version` integer DEFAULT 1 NOT NULL,
	`settings` text DEFAULT '{}' NOT NULL,
	`wrapped_key` text NOT NULL,
	`shard` text,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE TABLE `usage_days` (
	`tenant` text NOT NULL,
	`day` integer NOT NULL,
	`caller_id` text NOT NULL,
	`user_id` text NOT NULL,
	`model` text NOT NULL,
	`tool` text NOT NULL,
	`calls` integer NOT NULL,
	`tokens` integer NOT NULL,
	`prompt_tokens` integer NOT NULL,
	`completion_tokens` integer NOT NULL,
	`cached_tokens` integer NOT NULL,
	`micros` integer NOT NULL,
	`context_tokens` integer NOT NULL,
	`context_micros` integer NOT NULL,
	`estimated_calls` integer NOT NULL,
	PRIMARY KEY(`tenant`, `day`, `caller_id`, `user_id`, `model`, `tool`)
);
--> statement-breakpoint
CREATE TABLE `workspace_files` (
	`tenant` text NOT NULL,
	`session_id` text NOT NULL,
	`path` text NOT NULL,
	`bytes` integer NOT NULL,
	`media_type` text NOT NULL,
	`blob_key` text NOT NULL,
	`previous_blob_key` text,
	`updated_at` integer NOT NULL,
	PRIMARY KEY(`tenant`, `session_id`, `path`)
);
