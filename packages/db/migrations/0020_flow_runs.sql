CREATE TABLE `flow_signals` (
	`tenant` text NOT NULL,
	`run` text NOT NULL,
	`token` text NOT NULL,
	`name` text NOT NULL,
	`payload` text NOT NULL,
	`number` integer NOT NULL,
	`path` text,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	PRIMARY KEY(`tenant`, `run`, `token`)
);
--> statement-breakpoint
CREATE TABLE `flow_steps` (
	`tenant` text NOT NULL,
	`run` text NOT NULL,
	`path` text NOT NULL,
	`node` text NOT NULL,
	`kind` text NOT NULL,
	`state` text NOT NULL,
	`attempt` integer NOT NULL,
	`input` text,
	`output` text,
	`error` text,
	`call_id` text,
	`question_id` text,
	`progress` text,
	`wake_at` integer,
	`started_at` integer NOT NULL,
	`finished_at` integer,
	`started_seq` integer NOT NULL,
	`seq` integer NOT NULL,
	PRIMARY KEY(`tenant`, `run`, `path`)
);
--> statement-breakpoint
CREATE INDEX `flow_steps_seq` ON `flow_steps` (`tenant`,`run`,`seq`);--> statement-breakpoint
ALTER TABLE `calls` ADD `woken` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
-- A call that waits for another one (a run of a flow for its step) is woken in the transaction that ends that one,
-- whichever statement does: a worker, a callback, a person, a cancel. Nobody has to remember to, and nobody can die
-- before it is done; the message that is sent then only spares the sweep's delay.
CREATE TRIGGER calls_wake_parent AFTER UPDATE OF state ON calls
WHEN NEW.parent_id IS NOT NULL AND NEW.state IS NOT OLD.state
  AND NEW.state <> 'queued' AND NEW.state <> 'running' AND NEW.state <> 'input_required'
BEGIN
  UPDATE calls SET woken = woken + 1,
    run_at = CASE state WHEN 'queued' THEN MIN(COALESCE(run_at, 0), CAST(unixepoch('subsec') * 1000 AS INTEGER)) ELSE run_at END,
    sent_at = CASE state WHEN 'queued' THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE sent_at END
  WHERE tenant = NEW.tenant AND id = NEW.parent_id AND repeat = 'resume' AND (state = 'queued' OR state = 'running');
END;
--> statement-breakpoint
-- Past its retention a run goes with its row.
CREATE TRIGGER calls_forget_run AFTER DELETE ON calls WHEN OLD.repeat = 'resume'
BEGIN
  DELETE FROM flow_steps WHERE tenant = OLD.tenant AND run = OLD.id;
  DELETE FROM flow_signals WHERE tenant = OLD.tenant AND run = OLD.id;
END;
