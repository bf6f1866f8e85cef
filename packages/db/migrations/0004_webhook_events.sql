-- Events for webhooks: a row for each webhook that wants to hear of it, in the transaction that changes the
-- call, whichever statement does. So no event is lost when a process dies, and none is told of a change that
-- was rolled back. The body is written here, once: what is sent again is the same. Neither arguments nor
-- results are in it, nor texts of errors. A tenant without webhooks pays one look into an index. The number in the id keeps the
-- order of events of one millisecond.
CREATE TRIGGER calls_told AFTER UPDATE OF state ON calls
WHEN NEW.state IS NOT OLD.state
  AND NEW.state IN ('completed', 'failed', 'cancelled', 'unknown', 'rejected', 'input_required')
BEGIN
  INSERT INTO webhook_deliveries (id, tenant, webhook_id, type, call_id, body, next_at)
  SELECT 'evt_' || printf('%012x%010x', CAST(unixepoch('subsec') * 1000 AS INTEGER),
      (SELECT COALESCE(MAX(rowid), 0) FROM webhook_deliveries)) || lower(hex(randomblob(8))), NEW.tenant, webhooks.id,
    'call.' || event, NEW.id,
    json_object('type', 'call.' || event, 'timestamp', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'data', json_object(
      'id', NEW.id, 'object', 'call', 'kind', NEW.kind, 'state', NEW.state, 'tool', NEW.tool, 'uri', NEW.uri,
      'effect', NEW.effect, 'async', json(CASE WHEN NEW.async THEN 'true' ELSE 'false' END), 'attempt', NEW.attempt,
      'parent_id', NEW.parent_id, 'root_id', NEW.root_id, 'session_id', NEW.session_id, 'caller_id', NEW.caller_id,
      'user_id', NEW.user_id, 'error_code', NEW.error ->> 'code',
      'request_id', NEW.request_id, 'trace_id', NEW.trace_id,
      'created_at', strftime('%Y-%m-%dT%H:%M:%fZ', NEW.created_at / 1000.0, 'unixepoch'),
      'started_at', strftime('%Y-%m-%dT%H:%M:%fZ', NEW.started_at / 1000.0, 'unixepoch'),
      'finished_at', strftime('%Y-%m-%dT%H:%M:%fZ', NEW.finished_at / 1000.0, 'unixepoch'))),
    CAST(unixepoch('subsec') * 1000 AS INTEGER)
  FROM webhooks CROSS JOIN (
    SELECT CASE NEW.state WHEN 'input_required' THEN 'approval_required' ELSE NEW.state END AS event)
  WHERE webhooks.tenant = NEW.tenant AND webhooks.enabled AND instr(webhooks.events, '"call.' || event || '"') > 0;
END;
--> statement-breakpoint
-- Refused calls, and those that wait for a person, are written so from the start.
CREATE TRIGGER calls_told_at_once AFTER INSERT ON calls
WHEN NEW.state IN ('rejected', 'input_required')
BEGIN
  INSERT INTO webhook_deliveries (id, tenant, webhook_id, type, call_id, body, next_at)
  SELECT 'evt_' || printf('%012x%010x', CAST(unixepoch('subsec') * 1000 AS INTEGER),
      (SELECT COALESCE(MAX(rowid), 0) FROM webhook_deliveries)) || lower(hex(randomblob(8))), NEW.tenant, webhooks.id,
    'call.' || event, NEW.id,
    json_object('type', 'call.' || event, 'timestamp', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'data', json_object(
      'id', NEW.id, 'object', 'call', 'kind', NEW.kind, 'state', NEW.state, 'tool', NEW.tool, 'uri', NEW.uri,
      'effect', NEW.effect, 'async', json(CASE WHEN NEW.async THEN 'true' ELSE 'false' END), 'attempt', NEW.attempt,
      'parent_id', NEW.parent_id, 'root_id', NEW.root_id, 'session_id', NEW.session_id, 'caller_id', NEW.caller_id,
      'user_id', NEW.user_id, 'error_code', NEW.error ->> 'code',
      'request_id', NEW.request_id, 'trace_id', NEW.trace_id,
      'created_at', strftime('%Y-%m-%dT%H:%M:%fZ', NEW.created_at / 1000.0, 'unixepoch'),
      'started_at', strftime('%Y-%m-%dT%H:%M:%fZ', NEW.started_at / 1000.0, 'unixepoch'),
      'finished_at', strftime('%Y-%m-%dT%H:%M:%fZ', NEW.finished_at / 1000.0, 'unixepoch'))),
    CAST(unixepoch('subsec') * 1000 AS INTEGER)
  FROM webhooks CROSS JOIN (
    SELECT CASE NEW.state WHEN 'input_required' THEN 'approval_required' ELSE NEW.state END AS event)
  WHERE webhooks.tenant = NEW.tenant AND webhooks.enabled AND instr(webhooks.events, '"call.' || event || '"') > 0;
END;
