CREATE TABLE `schedules` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`name` text,
	`task_id` text,
	`given` text NOT NULL,
	`timing` text NOT NULL,
	`time_zone` text NOT NULL,
	`start_at` integer,
	`end_at` integer,
	`misfire` text NOT NULL,
	`target` text NOT NULL,
	`task` text NOT NULL,
	`deliver` text NOT NULL,
	`caller` text NOT NULL,
	`caller_id` text NOT NULL,
	`paused` integer NOT NULL,
	`next_at` integer,
	`taken_at` integer,
	`missed_at` integer,
	`fired` integer DEFAULT 0 NOT NULL,
	`last_call_id` text,
	`last_state` text,
	`last_error` text,
	`last_ended_at` integer,
	`created_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL,
	`updated_at` integer DEFAULT (cast(unixepoch('subsec') * 1000 as integer)) NOT NULL
);
--> statement-breakpoint
CREATE INDEX `schedules_tenant` ON `schedules` (`tenant`,`id`);--> statement-breakpoint
CREATE INDEX `schedules_tenant_caller` ON `schedules` (`tenant`,`caller_id`,`id`);--> statement-breakpoint
CREATE UNIQUE INDEX `schedules_tenant_task` ON `schedules` (`tenant`,`task_id`) WHERE task_id is not null;--> statement-breakpoint
CREATE INDEX `schedules_due` ON `schedules` (`next_at`) WHERE next_at is not null and paused = 0;--> statement-breakpoint
CREATE INDEX `schedules_ended` ON `schedules` (`updated_at`) WHERE next_at is null;--> statement-breakpoint
-- What a firing came to is noted at its schedule and told where the schedule says, in the transaction that ends the
-- call, whichever statement does. What was called off before it began came to nothing.
CREATE TRIGGER schedule_firing_ended AFTER UPDATE OF state ON calls
WHEN NEW.route = 'schedule.firing' AND NEW.state IS NOT OLD.state
  AND NEW.state <> 'queued' AND NEW.state <> 'running' AND NEW.state <> 'input_required'
  AND (NEW.state <> 'cancelled' OR NEW.started_at IS NOT NULL)
BEGIN
  UPDATE schedules SET last_call_id = NEW.id, last_state = NEW.state,
    last_ended_at = CAST(unixepoch('subsec') * 1000 AS INTEGER),
    last_error = CASE WHEN NEW.error IS NOT NULL
      THEN json_object('code', NEW.error ->> 'code', 'message', NEW.error ->> 'message') END
  WHERE tenant = NEW.tenant AND id = NEW.parent_id;
END;
--> statement-breakpoint
-- Refused firings are written so from the start.
CREATE TRIGGER schedule_firing_refused AFTER INSERT ON calls
WHEN NEW.route = 'schedule.firing' AND NEW.state = 'rejected'
BEGIN
  UPDATE schedules SET last_call_id = NEW.id, last_state = NEW.state,
    last_ended_at = CAST(unixepoch('subsec') * 1000 AS INTEGER),
    last_error = json_object('code', NEW.error ->> 'code', 'message', NEW.error ->> 'message')
  WHERE tenant = NEW.tenant AND id = NEW.parent_id;
END;
--> statement-breakpoint
-- A webhook that wants to hear of such ends anyway is told by `calls_told`. Clients get the result itself, as far as
-- it fits into a frame; a client that is not there has missed it.
CREATE TRIGGER schedule_firing_told AFTER UPDATE OF last_ended_at ON schedules
WHEN NEW.deliver <> '{}'
BEGIN
  INSERT INTO webhook_deliveries (id, tenant, webhook_id, type, call_id, body, next_at)
  SELECT 'evt_' || printf('%012x%010x', CAST(unixepoch('subsec') * 1000 AS INTEGER),
      (SELECT COALESCE(MAX(rowid), 0) FROM webhook_deliveries)) || lower(hex(randomblob(8))), NEW.tenant, webhooks.id,
    'call.' || NEW.last_state, NEW.last_call_id, '', CAST(unixepoch('subsec') * 1000 AS INTEGER)
  FROM webhooks
  WHERE webhooks.tenant = NEW.tenant AND webhooks.id = NEW.deliver ->> '$.webhook' AND webhooks.enabled
    AND instr(webhooks.events, '"call.' || NEW.last_state || '"') = 0;
  INSERT INTO connection_events (tenant, type, audience, audience_value, call_id, caller_id, data, next_at)
  SELECT NEW.tenant, 'schedule.fired', 'client_type', NEW.deliver ->> '$.push', call.id, call.caller_id,
    json_object('schedule_id', NEW.id, 'name', NEW.name, 'task_id', NEW.task_id, 'call_id', call.id,
      'state', call.state, 'media_type', call.outcome_media_type,
      'result', CASE WHEN length(CAST(json_quote(call.outcome_text) AS BLOB)) <= 24000 THEN call.outcome_text END,
      'truncated', json(CASE WHEN call.outcome_blob_key IS NOT NULL
        OR length(CAST(json_quote(call.outcome_text) AS BLOB)) > 24000 THEN 'true' ELSE 'false' END),
      'error', json(NEW.last_error), 'url', '/v1/calls/' || call.id),
    CASE WHEN EXISTS (SELECT 1 FROM connections WHERE tenant = NEW.tenant AND client_type = NEW.deliver ->> '$.push'
      AND holder = '') THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) END
  FROM calls AS call
  WHERE call.tenant = NEW.tenant AND call.id = NEW.last_call_id
    AND EXISTS (SELECT 1 FROM connections WHERE tenant = NEW.tenant AND client_type = NEW.deliver ->> '$.push'
      AND expires_at > CAST(unixepoch('subsec') * 1000 AS INTEGER));
END;
