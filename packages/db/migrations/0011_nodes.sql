CREATE TABLE `node_runs` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`call_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`node` text NOT NULL,
	`instance` text NOT NULL,
	`connection_id` text NOT NULL,
	`tool` text NOT NULL,
	`state` text DEFAULT 'offered' NOT NULL,
	`handed_over` integer NOT NULL,
	`cancelled` integer DEFAULT false NOT NULL,
	`input` text,
	`result` text,
	`settled` integer DEFAULT false NOT NULL,
	`lease_until` integer NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`ended_at` integer
);
--> statement-breakpoint
CREATE INDEX `node_runs_under_way` ON `node_runs` (`tenant`,`node`) WHERE state in ('offered', 'accepted');--> statement-breakpoint
CREATE INDEX `node_runs_call` ON `node_runs` (`tenant`,`call_id`);--> statement-breakpoint
CREATE INDEX `node_runs_late` ON `node_runs` (`ended_at`) WHERE settled = 0 and ended_at is not null;--> statement-breakpoint
CREATE INDEX `node_runs_expiry` ON `node_runs` (`lease_until`);--> statement-breakpoint
CREATE TABLE `nodes` (
	`id` text NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`version` text NOT NULL,
	`instance` text NOT NULL,
	`caller_id` text NOT NULL,
	`connection_id` text NOT NULL,
	`tools` text NOT NULL,
	`hashes` text NOT NULL,
	`since` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`seen_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`expires_at` integer NOT NULL,
	PRIMARY KEY(`tenant`, `name`)
);
--> statement-breakpoint
CREATE INDEX `nodes_instance` ON `nodes` (`tenant`,`instance`);--> statement-breakpoint
CREATE INDEX `nodes_expiry` ON `nodes` (`expires_at`);