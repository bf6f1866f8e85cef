CREATE TABLE `knowledge_bases` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`config` text NOT NULL,
	`config_version` integer DEFAULT 1 NOT NULL,
	`index_version` integer DEFAULT 1 NOT NULL,
	`next_config` text,
	`next_index_version` integer,
	`last_index_version` integer DEFAULT 1 NOT NULL,
	`last_document_version` integer DEFAULT 0 NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `knowledge_bases_tenant_name` ON `knowledge_bases` (`tenant`,`name`);--> statement-breakpoint
CREATE TABLE `knowledge_chunks` (
	`id` integer PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`knowledge_base` text NOT NULL,
	`document` text NOT NULL,
	`document_version` integer NOT NULL,
	`index_version` integer NOT NULL,
	`ordinal` integer NOT NULL,
	`span_start` integer NOT NULL,
	`span_end` integer NOT NULL,
	`embedding` blob,
	`heading` text NOT NULL,
	`text` text NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `knowledge_chunks_place` ON `knowledge_chunks` (`tenant`,`knowledge_base`,`document`,`document_version`,`index_version`,`ordinal`);--> statement-breakpoint
CREATE TABLE `knowledge_documents` (
	`tenant` text NOT NULL,
	`knowledge_base` text NOT NULL,
	`id` text NOT NULL,
	`name` text NOT NULL,
	`version` integer NOT NULL,
	`current_version` integer,
	`built_index_version` integer,
	`built_version` integer,
	`built_chunk_count` integer DEFAULT 0 NOT NULL,
	`state` text NOT NULL,
	`progress_done` integer DEFAULT 0 NOT NULL,
	`progress_total` integer DEFAULT 0 NOT NULL,
	`error_code` text,
	`error_message` text,
	`call_id` text NOT NULL,
	`attempt` integer DEFAULT 0 NOT NULL,
	`media_type` text NOT NULL,
	`bytes` integer NOT NULL,
	`hash` text NOT NULL,
	`blob_key` text NOT NULL,
	`current_blob_key` text,
	`source_url` text,
	`characters` integer DEFAULT 0 NOT NULL,
	`chunk_count` integer DEFAULT 0 NOT NULL,
	`metadata` text NOT NULL,
	`acl` text,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`ready_at` integer,
	PRIMARY KEY(`tenant`, `knowledge_base`, `id`)
);
--> statement-breakpoint
CREATE INDEX `knowledge_documents_call` ON `knowledge_documents` (`tenant`,`call_id`);--> statement-breakpoint
CREATE TABLE `knowledge_garbage` (
	`id` integer PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`knowledge_base` text NOT NULL,
	`document` text,
	`up_to_version` integer,
	`index_version` integer,
	`has_chunks` integer NOT NULL,
	`blob_key` text,
	`due_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `knowledge_garbage_due` ON `knowledge_garbage` (`due_at`);--> statement-breakpoint
CREATE INDEX `knowledge_garbage_blob` ON `knowledge_garbage` (`tenant`,`blob_key`);--> statement-breakpoint
-- Full text of chunks, under their numbers: `scope` is one word for the base and its index, so that a search reads
-- that base's entries only; `text` is made of words before it is written (CJK as pairs of characters).
CREATE VIRTUAL TABLE knowledge_fts USING fts5(scope, text, tokenize = 'unicode61 remove_diacritics 2');
--> statement-breakpoint
CREATE TRIGGER knowledge_chunks_gone AFTER DELETE ON knowledge_chunks
BEGIN
  DELETE FROM knowledge_fts WHERE rowid = OLD.id;
END;
