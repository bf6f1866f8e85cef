CREATE TABLE `failed_messages` (
	`tenant` text NOT NULL,
	`subscription_id` text NOT NULL,
	`key` text NOT NULL,
	`id` text NOT NULL,
	`message_id` text,
	`attempts` integer NOT NULL,
	`is_dead` integer NOT NULL,
	`code` text NOT NULL,
	`message` text NOT NULL,
	`first_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`last_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	PRIMARY KEY(`tenant`, `subscription_id`, `key`)
);
--> statement-breakpoint
CREATE INDEX `failed_messages_id` ON `failed_messages` (`tenant`,`subscription_id`,`id`);--> statement-breakpoint
CREATE INDEX `failed_messages_expiry` ON `failed_messages` (`last_at`);--> statement-breakpoint
CREATE TABLE `subscription_holders` (
	`tenant` text NOT NULL,
	`subscription_id` text NOT NULL,
	`instance` text NOT NULL,
	`node` text NOT NULL,
	`connection_id` text NOT NULL,
	`lease_until` integer NOT NULL,
	`state` text,
	`error_code` text,
	`error_message` text,
	`last_error_at` integer,
	`waiting` integer,
	`in_hand` integer DEFAULT 0 NOT NULL,
	`since` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`seen_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	PRIMARY KEY(`tenant`, `subscription_id`, `instance`)
);
--> statement-breakpoint
CREATE INDEX `subscription_holders_instance` ON `subscription_holders` (`tenant`,`instance`);--> statement-breakpoint
CREATE INDEX `subscription_holders_expiry` ON `subscription_holders` (`lease_until`);--> statement-breakpoint
CREATE TABLE `subscription_lanes` (
	`tenant` text NOT NULL,
	`subscription_id` text NOT NULL,
	`lane` text NOT NULL,
	`key` text NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	PRIMARY KEY(`tenant`, `subscription_id`, `lane`)
);
--> statement-breakpoint
CREATE INDEX `subscription_lanes_expiry` ON `subscription_lanes` (`updated_at`);--> statement-breakpoint
CREATE TABLE `subscriptions` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`description` text,
	`service_id` text NOT NULL,
	`topic` text NOT NULL,
	`target` text NOT NULL,
	`options` text NOT NULL,
	`enabled` integer NOT NULL,
	`role` text NOT NULL,
	`version` integer DEFAULT 1 NOT NULL,
	`accepted` integer DEFAULT 0 NOT NULL,
	`duplicates` integer DEFAULT 0 NOT NULL,
	`refused` integer DEFAULT 0 NOT NULL,
	`dead` integer DEFAULT 0 NOT NULL,
	`dropped` integer DEFAULT 0 NOT NULL,
	`last_message_at` integer,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `subscriptions_tenant_name` ON `subscriptions` (`tenant`,`name`);--> statement-breakpoint
CREATE INDEX `subscriptions_tenant_id` ON `subscriptions` (`tenant`,`id`);--> statement-breakpoint
CREATE INDEX `calls_of_subscriptions` ON `calls` (`tenant`,`caller_id`,`idempotency_key`) WHERE route || '' = 'mq.subscription' and state in ('queued', 'running', 'input_required');