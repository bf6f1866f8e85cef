CREATE TABLE `vcp_variables` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`kind` text NOT NULL,
	`name` text NOT NULL,
	`options` text NOT NULL,
	`position` integer NOT NULL,
	`hash` text NOT NULL,
	`bytes` integer NOT NULL,
	`content` text NOT NULL,
	`version` integer DEFAULT 1 NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `vcp_variables_tenant_kind_name` ON `vcp_variables` (`tenant`,`kind`,`name`);--> statement-breakpoint
CREATE INDEX `vcp_variables_tenant_id` ON `vcp_variables` (`tenant`,`id`);