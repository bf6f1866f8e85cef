-- Events for webhooks: a row for each webhook that wants to hear of it, in the transaction that changes the
-- call, whichever statement does. So no event is lost when a process dies, and none is told of a change that
-- was rolled back. The number in the id keeps the order of events of one millisecond.
--
-- Short, since they are run for every call: a tenant without webhooks pays one look into an index. The body is
-- made by the last trigger.
CREATE TRIGGER calls_told AFTER UPDATE OF state ON calls
WHEN NEW.state IS NOT OLD.state
  AND NEW.state IN ('completed', 'failed', 'cancelled', 'unknown', 'rejected', 'input_required')
BEGIN
  INSERT INTO webhook_deliveries (id, tenant, webhook_id, type, call_id, body, next_at)
  SELECT 'evt_' || printf('%012x%010x', CAST(unixepoch('subsec') * 1000 AS INTEGER),
      (SELECT COALESCE(MAX(rowid), 0) FROM webhook_deliveries)) || lower(hex(randomblob(8))), NEW.tenant, webhooks.id,
    CASE NEW.state WHEN 'input_required' THEN 'call.approval_required' ELSE 'call.' || NEW.state END, NEW.id, '',
    CAST(unixepoch('subsec') * 1000 AS INTEGER)
  FROM webhooks
  WHERE webhooks.tenant = NEW.tenant AND webhooks.enabled AND instr(webhooks.events,
    CASE NEW.state WHEN 'input_required' THEN '"call.approval_required"' ELSE '"call.' || NEW.state || '"' END) > 0;
END;
--> statement-breakpoint
-- Refused calls, and those that wait for a person, are written so from the start.
CREATE TRIGGER calls_told_at_once AFTER INSERT ON calls
WHEN NEW.state IN ('rejected', 'input_required')
BEGIN
  INSERT INTO webhook_deliveries (id, tenant, webhook_id, type, call_id, body, next_at)
  SELECT 'evt_' || printf('%012x%010x', CAST(unixepoch('subsec') * 1000 AS INTEGER),
      (SELECT COALESCE(MAX(rowid), 0) FROM webhook_deliveries)) || lower(hex(randomblob(8))), NEW.tenant, webhooks.id,
    CASE NEW.state WHEN 'input_required' THEN 'call.approval_required' ELSE 'call.' || NEW.state END, NEW.id, '',
    CAST(unixepoch('subsec') * 1000 AS INTEGER)
  FROM webhooks
  WHERE webhooks.tenant = NEW.tenant AND webhooks.enabled AND instr(webhooks.events,
    CASE NEW.state WHEN 'input_required' THEN '"call.approval_required"' ELSE '"call.' || NEW.state || '"' END) > 0;
END;
--> statement-breakpoint
-- Still the same transaction. What is sent again is the same, although the call may have gone on. Neither
-- arguments nor results are in it, nor texts of errors.
CREATE TRIGGER webhook_deliveries_written AFTER INSERT ON webhook_deliveries
WHEN NEW.call_id IS NOT NULL
BEGIN
  UPDATE webhook_deliveries SET body = json_object('type', NEW.type,
    'timestamp', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'data', json((
      SELECT json_object(
        'id', id, 'object', 'call', 'kind', kind, 'state', state, 'tool', tool, 'uri', uri, 'effect', effect,
        'async', json(CASE WHEN async THEN 'true' ELSE 'false' END), 'attempt', attempt,
        'parent_id', parent_id, 'root_id', root_id, 'session_id', session_id, 'caller_id', caller_id,
        'user_id', user_id, 'error_code', error ->> 'code', 'request_id', request_id, 'trace_id', trace_id,
        'created_at', strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch'),
        'started_at', strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000.0, 'unixepoch'),
        'finished_at', strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000.0, 'unixepoch'))
      FROM calls WHERE calls.tenant = NEW.tenant AND calls.id = NEW.call_id)))
  WHERE webhook_deliveries.id = NEW.id;
END;
