CREATE TABLE `group_chat_members` (
	`tenant` text NOT NULL,
	`group_chat` text NOT NULL,
	`kind` text NOT NULL,
	`name` text NOT NULL,
	`display_name` text,
	`place` integer NOT NULL,
	`joined_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	PRIMARY KEY(`tenant`, `group_chat`, `kind`, `name`)
);
--> statement-breakpoint
CREATE TABLE `group_chat_messages` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`group_chat` text NOT NULL,
	`turn` text NOT NULL,
	`position` integer NOT NULL,
	`turn_number` integer,
	`author_kind` text NOT NULL,
	`author_name` text NOT NULL,
	`author_display_name` text,
	`content` text NOT NULL,
	`state` text NOT NULL,
	`reason` text,
	`error` text,
	`call_id` text,
	`attempt` integer DEFAULT 1 NOT NULL,
	`read_outside` integer DEFAULT false NOT NULL,
	`superseded_by` text,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`finished_at` integer
);
--> statement-breakpoint
CREATE UNIQUE INDEX `group_chat_messages_turn` ON `group_chat_messages` (`tenant`,`group_chat`,`turn`,`position`);--> statement-breakpoint
CREATE INDEX `group_chat_messages_number` ON `group_chat_messages` (`tenant`,`group_chat`,`turn_number`);--> statement-breakpoint
CREATE INDEX `group_chat_messages_id` ON `group_chat_messages` (`tenant`,`group_chat`,`id`);--> statement-breakpoint
CREATE TABLE `group_chats` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`mode` text NOT NULL,
	`topic` text,
	`moderator` text,
	`access` text NOT NULL,
	`limits` text NOT NULL,
	`owner_id` text NOT NULL,
	`current_turn` text,
	`turn_started_at` integer,
	`turns` integer DEFAULT 0 NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE INDEX `group_chats_tenant_id` ON `group_chats` (`tenant`,`id`);