CREATE TABLE `flow_hooks` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`flow_id` text NOT NULL,
	`name` text NOT NULL,
	`enabled` integer NOT NULL,
	`role` text NOT NULL,
	`token_hash` text NOT NULL,
	`hint` text NOT NULL,
	`sealed` text,
	`last_used_at` integer,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `flow_hooks_token` ON `flow_hooks` (`tenant`,`token_hash`);--> statement-breakpoint
CREATE INDEX `flow_hooks_flow` ON `flow_hooks` (`tenant`,`flow_id`,`id`);--> statement-breakpoint
CREATE TABLE `flow_versions` (
	`tenant` text NOT NULL,
	`flow_id` text NOT NULL,
	`number` integer NOT NULL,
	`hash` text NOT NULL,
	`definition` text NOT NULL,
	`description` text NOT NULL,
	`input` text NOT NULL,
	`effect` text NOT NULL,
	`refs` text NOT NULL,
	`published_by` text NOT NULL,
	`published_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	PRIMARY KEY(`tenant`, `flow_id`, `number`)
);
--> statement-breakpoint
CREATE INDEX `flow_versions_tenant_hash` ON `flow_versions` (`tenant`,`hash`);--> statement-breakpoint
CREATE TABLE `flows` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`enabled` integer NOT NULL,
	`draft` text NOT NULL,
	`draft_hash` text NOT NULL,
	`draft_refs` text NOT NULL,
	`latest` integer,
	`latest_hash` text,
	`revision` integer DEFAULT 1 NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `flows_tenant_name` ON `flows` (`tenant`,`name`);--> statement-breakpoint
CREATE INDEX `flows_tenant_id` ON `flows` (`tenant`,`id`);