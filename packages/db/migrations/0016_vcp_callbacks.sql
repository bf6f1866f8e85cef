CREATE TABLE `vcp_callbacks` (
	`tenant` text NOT NULL,
	`call_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`hash` text NOT NULL,
	`plugin` text NOT NULL,
	`caller_id` text NOT NULL,
	`user_id` text,
	`session_id` text,
	`answered` integer DEFAULT false NOT NULL,
	`task_id` text,
	`kept_ms` integer NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`expires_at` integer NOT NULL,
	PRIMARY KEY(`tenant`, `call_id`, `attempt`)
);
--> statement-breakpoint
CREATE UNIQUE INDEX `vcp_callbacks_hash` ON `vcp_callbacks` (`tenant`,`hash`);--> statement-breakpoint
CREATE INDEX `vcp_callbacks_expiry` ON `vcp_callbacks` (`expires_at`);--> statement-breakpoint
CREATE TABLE `vcp_static_values` (
	`tenant` text NOT NULL,
	`source` text NOT NULL,
	`key` text NOT NULL,
	`value` text,
	`blob_key` text,
	`version` text NOT NULL,
	`error` text,
	`refreshed_at` integer,
	`lease_until` integer,
	`next_at` integer,
	PRIMARY KEY(`tenant`, `source`, `key`)
);
--> statement-breakpoint
CREATE INDEX `vcp_static_values_due` ON `vcp_static_values` (`next_at`) WHERE next_at is not null;--> statement-breakpoint
CREATE TABLE `vcp_tasks` (
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`plugin` text NOT NULL,
	`task_id` text NOT NULL,
	`call_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`caller_id` text NOT NULL,
	`user_id` text,
	`session_id` text,
	`done_at` integer,
	`settled` integer DEFAULT false NOT NULL,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`expires_at` integer NOT NULL,
	PRIMARY KEY(`tenant`, `name`)
);
--> statement-breakpoint
CREATE INDEX `vcp_tasks_call` ON `vcp_tasks` (`tenant`,`call_id`);--> statement-breakpoint
CREATE INDEX `vcp_tasks_late` ON `vcp_tasks` (`done_at`) WHERE settled = 0 and done_at is not null;--> statement-breakpoint
CREATE INDEX `vcp_tasks_expiry` ON `vcp_tasks` (`expires_at`);--> statement-breakpoint
-- Frames of VCP clients are what a plugin or a node says, without an envelope: whoever inserts one gives it whole.
DROP TRIGGER connection_events_written;
--> statement-breakpoint
CREATE TRIGGER connection_events_written AFTER INSERT ON connection_events WHEN NEW.body = ''
BEGIN
  UPDATE connection_events SET data = NULL, body = json_object('type', NEW.type,
    'id', 'evt_' || printf('%012x', CAST(unixepoch('subsec') * 1000 AS INTEGER)) || lower(hex(randomblob(8))),
    'seq', NEW.seq, 'timestamp', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'data', json(COALESCE(NEW.data, (
      SELECT json_object(
        'id', id, 'object', 'call', 'kind', kind, 'state', state, 'tool', tool, 'uri', uri, 'effect', effect,
        'async', json(CASE WHEN async THEN 'true' ELSE 'false' END), 'attempt', attempt,
        'parent_id', parent_id, 'root_id', root_id, 'session_id', session_id, 'caller_id', caller_id,
        'user_id', user_id, 'error_code', error ->> 'code', 'request_id', request_id, 'trace_id', trace_id,
        'created_at', strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch'),
        'started_at', strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000.0, 'unixepoch'),
        'finished_at', strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000.0, 'unixepoch'))
      FROM calls WHERE calls.tenant = NEW.tenant AND calls.id = NEW.call_id))))
  WHERE seq = NEW.seq;
END;
