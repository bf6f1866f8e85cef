-- Events for connected clients, as those for webhooks: written in the transaction that changes the call, and
-- only while a connection of the tenant listens to calls. A tenant with which nobody is connected pays one
-- look into an index.
CREATE TRIGGER calls_heard AFTER UPDATE OF state ON calls
WHEN NEW.state IS NOT OLD.state
  AND EXISTS (SELECT 1 FROM connections WHERE tenant = NEW.tenant AND hears > 0 AND hears & 1)
BEGIN
  INSERT INTO connection_events (tenant, type, audience, call_id, caller_id, session_id, decided, next_at)
  VALUES (NEW.tenant, CASE NEW.state WHEN 'input_required' THEN 'call.approval_required' ELSE 'call.' || NEW.state END,
    'calls', NEW.id, NEW.caller_id, NEW.session_id, NEW.state = 'input_required' OR NEW.approval IS NOT NULL,
    CASE WHEN EXISTS (SELECT 1 FROM connections WHERE tenant = NEW.tenant AND hears > 0 AND holder = '')
      THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) END);
END;
--> statement-breakpoint
CREATE TRIGGER calls_heard_at_once AFTER INSERT ON calls
WHEN EXISTS (SELECT 1 FROM connections WHERE tenant = NEW.tenant AND hears > 0 AND hears & 1)
BEGIN
  INSERT INTO connection_events (tenant, type, audience, call_id, caller_id, session_id, decided, next_at)
  VALUES (NEW.tenant, CASE NEW.state WHEN 'input_required' THEN 'call.approval_required' ELSE 'call.' || NEW.state END,
    'calls', NEW.id, NEW.caller_id, NEW.session_id, NEW.state = 'input_required' OR NEW.approval IS NOT NULL,
    CASE WHEN EXISTS (SELECT 1 FROM connections WHERE tenant = NEW.tenant AND hears > 0 AND holder = '')
      THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) END);
END;
--> statement-breakpoint
-- The frame, the same however often and to whomever it is sent. Of a call it holds what webhooks are told:
-- neither arguments nor results, nor texts of errors.
CREATE TRIGGER connection_events_written AFTER INSERT ON connection_events
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
