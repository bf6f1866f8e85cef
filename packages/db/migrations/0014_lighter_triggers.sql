-- The triggers that run with every end of a call, saying the same by other words: SQLite makes a table of a list
-- (`IN`) of more than two, and in a trigger it makes it anew for each row. What tells webhooks is begun where there
-- are any. A third of what an end costs was this.
DROP TRIGGER calls_charged;
--> statement-breakpoint
CREATE TRIGGER calls_charged AFTER UPDATE OF state ON calls
WHEN NEW.started_at IS NOT NULL
  AND (NEW.state = 'completed' OR NEW.state = 'failed' OR NEW.state = 'cancelled' OR NEW.state = 'unknown')
  AND (OLD.state = 'queued' OR OLD.state = 'running' OR OLD.state = 'input_required')
BEGIN
  INSERT INTO usage_days (tenant, day, caller_id, user_id, model, tool, calls, tokens, prompt_tokens, completion_tokens,
    cached_tokens, micros, context_tokens, context_micros, estimated_calls)
  VALUES (NEW.tenant, unixepoch('now', 'start of day') * 1000, NEW.caller_id, COALESCE(NEW.user_id, ''),
    CASE NEW.kind WHEN 'chat' THEN NEW.tool ELSE '' END, CASE NEW.kind WHEN 'tool' THEN NEW.tool ELSE '' END,
    1,
    COALESCE(NEW.cost ->> 'tokens', 0),
    COALESCE(NEW.cost ->> 'prompt_tokens', 0),
    COALESCE(NEW.cost ->> 'completion_tokens', 0),
    COALESCE(NEW.cost ->> 'cached_tokens', 0),
    COALESCE(NEW.cost ->> 'micros', 0),
    COALESCE(NEW.cost ->> 'context_tokens', 0),
    COALESCE(NEW.cost ->> 'context_micros', 0),
    COALESCE(NEW.cost ->> 'estimated', 0))
  ON CONFLICT (tenant, day, caller_id, user_id, model, tool) DO UPDATE SET
    calls = calls + excluded.calls,
    tokens = tokens + excluded.tokens,
    prompt_tokens = prompt_tokens + excluded.prompt_tokens,
    completion_tokens = completion_tokens + excluded.completion_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    micros = micros + excluded.micros,
    context_tokens = context_tokens + excluded.context_tokens,
    context_micros = context_micros + excluded.context_micros,
    estimated_calls = estimated_calls + excluded.estimated_calls;
  INSERT INTO budget_windows (tenant, budget_id, window_start, tokens, micros)
  SELECT budgets.tenant, budgets.id,
    CASE budgets.period
      WHEN 'minute' THEN unixepoch() / 60 * 60000
      WHEN 'hour' THEN unixepoch() / 3600 * 3600000
      WHEN 'day' THEN unixepoch('now', 'start of day') * 1000
      WHEN 'month' THEN unixepoch('now', 'start of month') * 1000
      ELSE 0 END,
    COALESCE(NEW.cost ->> 'tokens', 0), COALESCE(NEW.cost ->> 'micros', 0)
  FROM budgets
  WHERE budgets.tenant = NEW.tenant
    AND (budgets.scope = 'tenant'
      OR (budgets.scope = 'key' AND budgets.scope_id = NEW.caller_id)
      OR (budgets.scope = 'user' AND budgets.scope_id = NEW.user_id))
  ON CONFLICT (tenant, budget_id) DO UPDATE SET
    tokens = excluded.tokens + CASE WHEN window_start >= excluded.window_start THEN tokens ELSE 0 END,
    micros = excluded.micros + CASE WHEN window_start >= excluded.window_start THEN micros ELSE 0 END,
    window_start = MAX(window_start, excluded.window_start);
END;
--> statement-breakpoint
DROP TRIGGER calls_charged_again;
--> statement-breakpoint
CREATE TRIGGER calls_charged_again AFTER UPDATE OF state ON calls
WHEN NEW.started_at IS NOT NULL
  AND (NEW.state = 'completed' OR NEW.state = 'failed' OR NEW.state = 'cancelled' OR NEW.state = 'unknown')
  AND OLD.state <> 'queued' AND OLD.state <> 'running' AND OLD.state <> 'input_required'
  AND NEW.cost IS NOT OLD.cost
BEGIN
  INSERT INTO usage_days (tenant, day, caller_id, user_id, model, tool, calls, tokens, prompt_tokens, completion_tokens,
    cached_tokens, micros, context_tokens, context_micros, estimated_calls)
  SELECT NEW.tenant, unixepoch('now', 'start of day') * 1000, NEW.caller_id, COALESCE(NEW.user_id, ''),
    CASE NEW.kind WHEN 'chat' THEN NEW.tool ELSE '' END, CASE NEW.kind WHEN 'tool' THEN NEW.tool ELSE '' END,
    0,
    COALESCE(NEW.cost ->> 'tokens', 0) - COALESCE(charged ->> 'tokens', 0),
    COALESCE(NEW.cost ->> 'prompt_tokens', 0) - COALESCE(charged ->> 'prompt_tokens', 0),
    COALESCE(NEW.cost ->> 'completion_tokens', 0) - COALESCE(charged ->> 'completion_tokens', 0),
    COALESCE(NEW.cost ->> 'cached_tokens', 0) - COALESCE(charged ->> 'cached_tokens', 0),
    COALESCE(NEW.cost ->> 'micros', 0) - COALESCE(charged ->> 'micros', 0),
    COALESCE(NEW.cost ->> 'context_tokens', 0) - COALESCE(charged ->> 'context_tokens', 0),
    COALESCE(NEW.cost ->> 'context_micros', 0) - COALESCE(charged ->> 'context_micros', 0),
    COALESCE(NEW.cost ->> 'estimated', 0) - COALESCE(charged ->> 'estimated', 0)
  FROM (SELECT OLD.cost AS charged)
  WHERE true
  ON CONFLICT (tenant, day, caller_id, user_id, model, tool) DO UPDATE SET
    calls = calls + excluded.calls,
    tokens = tokens + excluded.tokens,
    prompt_tokens = prompt_tokens + excluded.prompt_tokens,
    completion_tokens = completion_tokens + excluded.completion_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    micros = micros + excluded.micros,
    context_tokens = context_tokens + excluded.context_tokens,
    context_micros = context_micros + excluded.context_micros,
    estimated_calls = estimated_calls + excluded.estimated_calls;
  INSERT INTO budget_windows (tenant, budget_id, window_start, tokens, micros)
  SELECT budgets.tenant, budgets.id,
    CASE budgets.period
      WHEN 'minute' THEN unixepoch() / 60 * 60000
      WHEN 'hour' THEN unixepoch() / 3600 * 3600000
      WHEN 'day' THEN unixepoch('now', 'start of day') * 1000
      WHEN 'month' THEN unixepoch('now', 'start of month') * 1000
      ELSE 0 END,
    COALESCE(NEW.cost ->> 'tokens', 0) - COALESCE(charged ->> 'tokens', 0),
    COALESCE(NEW.cost ->> 'micros', 0) - COALESCE(charged ->> 'micros', 0)
  FROM budgets CROSS JOIN (SELECT OLD.cost AS charged)
  WHERE budgets.tenant = NEW.tenant
    AND (budgets.scope = 'tenant'
      OR (budgets.scope = 'key' AND budgets.scope_id = NEW.caller_id)
      OR (budgets.scope = 'user' AND budgets.scope_id = NEW.user_id))
  ON CONFLICT (tenant, budget_id) DO UPDATE SET
    tokens = excluded.tokens + CASE WHEN window_start >= excluded.window_start THEN tokens ELSE 0 END,
    micros = excluded.micros + CASE WHEN window_start >= excluded.window_start THEN micros ELSE 0 END,
    window_start = MAX(window_start, excluded.window_start);
END;
--> statement-breakpoint
DROP TRIGGER calls_told;
--> statement-breakpoint
CREATE TRIGGER calls_told AFTER UPDATE OF state ON calls
WHEN NEW.state IS NOT OLD.state AND NEW.state <> 'queued' AND NEW.state <> 'running'
  AND EXISTS (SELECT 1 FROM webhooks WHERE tenant = NEW.tenant AND enabled)
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
