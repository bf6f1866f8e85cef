CREATE TABLE `call_archives` (
	`tenant` text NOT NULL,
	`id` text NOT NULL,
	`day` integer NOT NULL,
	`calls` integer DEFAULT 0 NOT NULL,
	`bytes` integer DEFAULT 0 NOT NULL,
	`created_at` integer NOT NULL,
	`written_at` integer,
	`claimed_by` text,
	`claimed_until` integer,
	PRIMARY KEY(`tenant`, `id`)
);
--> statement-breakpoint
CREATE INDEX `call_archives_unwritten` ON `call_archives` (`claimed_until`) WHERE written_at is null;--> statement-breakpoint
CREATE INDEX `call_archives_day` ON `call_archives` (`tenant`,`day`);--> statement-breakpoint
ALTER TABLE `calls` ADD `archive_id` text;--> statement-breakpoint
CREATE INDEX `calls_archived` ON `calls` (`tenant`,`archive_id`) WHERE archive_id is not null;