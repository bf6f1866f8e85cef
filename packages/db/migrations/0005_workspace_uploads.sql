CREATE TABLE `workspace_uploads` (
	`tenant` text NOT NULL,
	`id` text NOT NULL,
	`session_id` text NOT NULL,
	`path` text NOT NULL,
	`bytes` integer NOT NULL,
	`media_type` text NOT NULL,
	`blob_key` text NOT NULL,
	`replaces_blob_key` text,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL,
	`settled_at` integer,
	`claimed_until` integer,
	PRIMARY KEY(`tenant`, `id`)
);
--> statement-breakpoint
CREATE INDEX `workspace_uploads_open` ON `workspace_uploads` (`tenant`,`session_id`,`bytes`) WHERE settled_at is null;--> statement-breakpoint
CREATE INDEX `workspace_uploads_expiring` ON `workspace_uploads` (`expires_at`);