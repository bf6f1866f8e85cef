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
