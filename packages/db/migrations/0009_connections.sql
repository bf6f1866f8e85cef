CREATE TABLE `connection_events` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`tenant` text NOT NULL,
	`type` text NOT NULL,
	`audience` text NOT NULL,
	`audience_value` text,
	`call_id` text,
	`caller_id` text,
	`session_id` text,
	`decided` integer DEFAULT false NOT NULL,
	`data` text,
	`body` text DEFAULT '' NOT NULL,
	`next_at` integer,
	`attempt` integer DEFAULT 0 NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE INDEX `connection_events_tenant` ON `connection_events` (`tenant`,`seq`);--> statement-breakpoint
CREATE INDEX `connection_events_due` ON `connection_events` (`next_at`) WHERE next_at is not null;--> statement-breakpoint
CREATE INDEX `connection_events_created` ON `connection_events` (`created_at`);--> statement-breakpoint
CREATE TABLE `connection_tickets` (
	`hash` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`caller` text NOT NULL,
	`until` integer,
	`expires_at` integer NOT NULL,
	`taken_by` text
);
--> statement-breakpoint
CREATE INDEX `connection_tickets_expiry` ON `connection_tickets` (`expires_at`);--> statement-breakpoint
CREATE TABLE `connections` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`holder` text NOT NULL,
	`caller` text NOT NULL,
	`client_type` text,
	`subscriptions` text DEFAULT '{}' NOT NULL,
	`hears` integer DEFAULT 0 NOT NULL,
	`expires_at` integer NOT NULL,
	`closes_at` integer NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE INDEX `connections_tenant` ON `connections` (`tenant`);--> statement-breakpoint
CREATE INDEX `connections_hearing` ON `connections` (`tenant`,`hears`) WHERE hears > 0;--> statement-breakpoint
CREATE INDEX `connections_holder` ON `connections` (`holder`);--> statement-breakpoint
CREATE INDEX `connections_expiry` ON `connections` (`expires_at`);