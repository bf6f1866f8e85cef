CREATE TABLE `agents` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`definition` text NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `agents_tenant_name` ON `agents` (`tenant`,`name`);--> statement-breakpoint
CREATE INDEX `agents_tenant_id` ON `agents` (`tenant`,`id`);