/**
 * Every requirement of the product, by stable id. Tests cite ids with `verifies`; `requirements.test.ts`
 * fails on an unknown id, and `npm run coverage:requirements` writes docs/requirements.md from here.
 */
export const requirements = {
  "CHAT-1":
    "`POST /api/chat/completions` and `POST /v1/chat/completions` take the OpenAI request: `model` (omitted: the first in the tenant's order able to serve the request, reported in `model`), `messages` (system, user, assistant, tool; `tool_call_id`; content parts), `tools`, `tool_choice` (auto, none, required, named), `stream`, `temperature`, `max_tokens`, `session_id`. Omitted fields stay omitted upstream; unknown fields pass through; nulls and empty `tools` mean absent; own extensions are named in OpenAPI.",
  "CHAT-2":
    "Plain answer: an OpenAI `chat.completion` body with `choices`, `finish_reason`, `usage` summed over the whole tool loop. A request without `tools` behaves as OpenAI's does.",
  "CHAT-3":
    'Tool calls that the client must run come back as `tool_calls` with `finish_reason: "tool_calls"`, several in one answer where the model asks for several.',
  "CHAT-4":
    "Automatic mode: calls to tools the gateway owns run on the server, results go back into the conversation, and the final answer carries `tool_execution { executed, tools_called, session_id, workspace_path }` (`workspace_path` is the virtual `/mcp_workspaces/{session_id}`). A name listed in the request's `tools` is the client's, unless the request carries a `session_id` and the name is a gateway tool the caller may use; gateway tools bound to the caller need not be listed. Both examples of 004 are tests.",
  "CHAT-5":
    'Manual mode: `tool_execution: "manual"` returns every call; the client runs it itself or by `POST /v1/tools/invoke`, sends `role: "tool"` messages, and the answer uses them. Mixed calls (some the gateway\'s, some the client\'s) in one turn work.',
  "CHAT-6":
    "`/v1/…` streams standard OpenAI chunks (unmodified `openai` SDK helpers work, usage chunk included). `/api/…` streams the specified typed events `content`, `tool_call` (argument deltas), `tool_result`, `done` (carrying `usage` and `tool_execution`), then `[DONE]`, plus `error`, `tool_pending`, `approval_required`; after `error` comes `[DONE]` and no `done`. Each payload is in OpenAPI and in a golden file.",
  "CHAT-7":
    'Inside the loop, unknown and failed tools become results for the model (`/api`: `tool_result` with `success: false`). The error body (404 `tool_not_found`, type `invalid_request_error`; 502 `tool_failed`, type `tool_execution_error`, with `tool_name`) is sent by `/v1/tools/invoke`, for a `tool_choice` naming an unknown tool, and with `on_tool_error: "fail"`; once streaming has begun it is an `error` event.',
  "CHAT-8":
    "Sessions: each `session_id` has its own isolated workspace where file tools work; defaults 24 h idle, 100 MB, per tenant settable; `session_expired` 410, `workspace_full` 413; expired ones are removed, with two instances running.",
  "CHAT-9":
    "Built-in workspace tools `read_file` (utf-8, gbk, ascii), `write_file`, `list_files`, `delete_file`, `fetch`; a leading `/` means the workspace root; no path leaves it; undecodable bytes are a tool error naming the encodings.",
  "CHAT-10":
    "Independent tool calls of one turn run in parallel: reads together, writes to one service or workspace in call order; results keep the order of the calls; one failure does not cancel the others.",
  "CHAT-11":
    "Permission: one decision for listing and running; a caller only sees and runs tools its role, key and agent binding allow; tools marked sensitive wait for approval.",
  "CHAT-12":
    "Limits: time per tool (60 s), workspace size, concurrent tool calls per tenant (16), rounds, wall clock, cost; defaults settable up to the operator's cap; codes `tool_timeout` 504, `concurrency_limited` 429, `rounds_exceeded`, …; proven across two instances.",
  "CHAT-13":
    "Audit: every tool call is recorded with the caller chain, time, arguments and result (redacted, capped, by handle), duration, trace id; readable by API and export; knowledge calls keep ids, spans and counts only.",
  "CHAT-14":
    "Read-only tools' results are cached: key = tenant, caller identity, definition version, arguments; a repeat sends `If-None-Match`/`If-Modified-Since`, 304 reuses; a write to the service invalidates.",
  "CHAT-15":
    "Metrics with exact names in docs: requests, share with tools, response time; per tool calls, success rate, time; failures by kind. Prometheus locally, EMF on Lambda; two instances' totals equal the calls table.",
  "CHAT-16": "`GET /v1/models` lists what a tenant may use.",
  "CHAT-17":
    "docs/clients ships tested TypeScript and Python clients for both streams; the two curl calls of 004 run with real curl in e2e (with a key, port 8787); `text/event-stream` is sent without parameters.",
  "CHAT-18":
    "Arguments are validated against the tool's schema before anything leaves; a failure reaches the model as an error with JSON pointers; nothing runs.",
  "CHAT-19":
    "Large files stream: a 200 MB workspace file is put, read by range and sent on with resident memory growing under 64 MB; on Lambda by presigned URL above 5 MB.",
  "CHAT-20":
    "Bad conversations name `param` before any model call: empty `messages`, a tool message without its call, an unanswered call, duplicate tool names, `session_id` with path characters (400); another tenant's session (404).",
  "BLIND-1":
    "A tool is one JSON definition (`schema_version`, `name`, `description`, `parameters`, `execution`, `auth_config`); adding one needs no code and no deployment.",
  "BLIND-2":
    "`execution`: `method` GET/POST/PUT/DELETE (and PATCH), `base_url`, `content_type` (JSON, form, multipart, XML/text), `param_placement` query/body/path; with `path`, remaining arguments go to the query (GET, DELETE) or the body; a per-parameter override is allowed; schema defaults apply, falsy ones too; path values are encoded and may not change the route; credentials beat same-named arguments.",
  "BLIND-3":
    "`auth_config.type` api_key, bearer, basic, oauth2. `mapping` of `source` → `target` in `header` or `query`: bearer sends `Bearer <value>`, default target Authorization; basic targets `username`, `password`; oauth2 targets `client_id`, `client_secret`, `token_url`, `scope`. All entries apply (the spec's example has two).",
  "BLIND-4":
    "Table `sys_ai_plugin` with the specified columns; `plugin_id` integer (`plg_…` on the wire), `status` `0` enabled / `1` disabled, `type` HTTP/NATIVE/MCP/VCP, `execution_config` = `{schema_version, execution, auth_config}` (`url` read as an alias of `base_url`), `icon_url` http(s) only. Rows are per tenant; NATIVE rows are global, written by the migration step, enabled per tenant.",
  "BLIND-5":
    "Table `sys_user_credential`: encrypted at rest, plaintext only during the call. Before the model is called, presence and readability of `required_credentials` (mapped sources join it at registration) are checked; a missing key is refused, naming the key and how to add it.",
  "BLIND-6":
    "The model sees only name, description and parameters; `execution`, `auth_config` and credentials never reach the model, a log, an audit row, an error or a response.",
  "BLIND-7":
    "A trusted caller (own scope) may send the whole `runtime_config` (`{plugins: […], credentials: {KEY: value}}`) with chat, run_workflow or invoke instead of storing it. None of it is stored: a continuing request (approval, async, mixed turn) must send it again, else 409 `runtime_config_required`.",
  "BLIND-8":
    "The blind runner: parse call → load config → fill credentials → send → feed the reply back as tool output. Non-JSON and binary replies, charsets, big integers, 4xx/5xx, timeouts, redirects and oversized bodies each have a defined outcome.",
  "BLIND-9": "Chat offers exactly the enabled plugins bound to the agent (or key) and allowed to the caller.",
  "BLIND-10":
    "Refused at registration, naming the field: unknown `schema_version`, duplicate name, non-object `parameters`, a path placeholder nothing fills, non-http(s) or userinfo URL, unknown type or location, an argument colliding with an auth target. At the call: CR/LF in a credential, an undecryptable credential.",
  "NATIVE-1":
    "Native tools are TypeScript with a zod schema as the only truth; the JSON Schema is mirrored into `sys_ai_plugin` (`type` NATIVE, `execution_config.class_name`) and cannot be edited there.",
  "NATIVE-2":
    "Native tools see the context (tenant, session, trace id). Shipped and proved through public routes: knowledge search; deep search citing at least two configured sources; code sandbox returning stdout, files and an image; data analysis answering SQL over a 100 MB CSV.",
  "KB-1":
    "`/v1/knowledge/*` management plane, one JSON answer, not in `sys_ai_plugin`: create, delete, upsert, update_config, list, list_docs, delete_doc, query; `stream: true` on query emits FLOWRUN-1's events in the same framing. Each snake_case field also accepts its camelCase name; both with different values: 400.",
  "KB-2": "Tenant/ACL checks first, early return; logs carry no document text and no keys.",
  "KB-3":
    "Retrieval works on an embedded database with vectors and full text (Chinese included), and without any embedding key falls back to full text, saying so.",
  "FLOWRUN-1":
    "`POST /v1/run_workflow` (for example `workflow_id=knowledge_rag`) streams `tool_thinking`, `tool_start`, `tool_result`, `message_chunk`, `done`, `error` (`event:` type, `data:` JSON with `trace_id`); `trace_id` passes through every event, log and audit row; an unknown `workflow_id` is a 404 before the stream.",
  "URI-1":
    "`tool-type://tool-service-id/tool-id?[options]` parses into its four parts; tool-id is required except for flow and agent, where it is refused; options are typed (`timeout`, `max-attempts`, `method`, `async`, `version`, …). Added schemes: `plugin://name`, `native://name`, `vcp://plugin/command`.",
  "URI-2": "A malformed URI gives a parse error with the reason; in a flow it ends the flow or jumps to the fail node.",
  "URI-3": "An unknown type gives ToolNotFound naming the type.",
  "URI-4":
    "Unknown or duplicate option, `timeout=abc`, `max-attempts=0`, a value above the tenant's cap, bad percent-encoding: `invalid_uri` naming the option; `method` may not differ from what the tool allows.",
  "MCP-1": "`mcp://` connects on first call over stdio, SSE, Streamable HTTP or WebSocket, and reuses the connection.",
  "MCP-2": "`tools/list` discovery, cached, refreshed on `listChanged`, readable for a picker.",
  "MCP-3": "`tools/call` with arguments; content parts, `structuredContent` and `isError` mapped faithfully.",
  "MCP-4": "Reconnects after a drop, then completes the call where that is safe; if it can't, a connection error.",
  "MCP-5": "API-key authentication from the service config (and OAuth client credentials).",
  "SVC-1":
    "`svc://` over gRPC: address from the registry, method by uploaded descriptor or reflection, protobuf decoded to JSON.",
  "SVC-2": "`svc://` over HTTP with service credentials: JWT or mTLS.",
  "SVC-3":
    "Discovery from Consul, Nacos and Kubernetes; round robin, random, weighted (10,000 picks within 3 % of the weights); cached and refreshed; a dead instance leaves within one refresh.",
  "SVC-4":
    "Circuit breaker: opens past a failure threshold, then answers the configured `fallback` with `degraded: true`, else 503 `circuit_open` with the retry time; half-opens to recover.",
  "API-1": "`api://` GET: arguments as query string to base_url + endpoint.",
  "API-2": "`api://` POST: JSON body, `Content-Type: application/json`.",
  "API-3":
    "Auth: apikey `{header, value}`, bearer `{token}`, oauth2 `{client_id, client_secret, token_url}` with token caching and refresh. These exact fields are accepted; literals become credentials on write, reads show references.",
  "API-4": "Path parameters in the endpoint template.",
  "API-5":
    "`timeout` and `max-attempts` (counting sends, the first included) with exponential backoff; resent only where safe: reads, idempotent methods, provably nothing sent, or a key that the back end honours; after the last, a timeout error.",
  "API-6": "4xx/5xx are errors with status and body; they trigger the fail node.",
  "OSS-1":
    "`oss://{service}/save`, `load`, `list`, `delete`, `presign` with the specified arguments and results; the bucket comes from the service.",
  "OSS-2": "Back ends: Aliyun OSS, AWS S3, MinIO, Tencent COS, Huawei OBS.",
  "MQ-1": "`mq://service/topic` publishes and returns the message id.",
  "MQ-2":
    "Delayed messages (`delay` ms) are never consumable early and at most about 2 s late on an idle system; a restart loses none.",
  "MQ-3": "A subscription `mq://…` triggers a flow with the message as its input.",
  "MQ-4": "Brokers: RabbitMQ, Kafka, RocketMQ, Redis Pub/Sub (at most once, and said so, with the receiver count).",
  "MAIL-1":
    "`mail://service/profile` plain text over SMTP; status and message id. The tool-id names a message profile of the service (sender, default template, allowed recipients); unknown: `tool_not_found`.",
  "MAIL-2": "HTML bodies.",
  "MAIL-3": "Attachments as multipart.",
  "MAIL-4": "Templates with variables.",
  "MAIL-5": "Several recipients: a status for each.",
  "SMS-1":
    "`sms://service/profile` plain text: status and message id; vendors that only take templates use the configured `plain_template`, else `sms_plain_unsupported` before sending.",
  "SMS-2": "Template messages with parameters.",
  "SMS-3": "Aliyun, Tencent, Huawei, Twilio.",
  "FLOW-1": "`flow://name` runs a sub-flow and waits; its failure propagates.",
  "FLOW-2": "`?async=true` returns an execution id at once.",
  "FLOW-3":
    "`tenantId` and `buCode` pass on; explicit arguments override context variables, except that `tenantId` cannot be overridden (a different value: 403, audited) and `buCode` only to a unit the caller may act for (from the JWT claim or the key).",
  "FLOW-4": "`?version=2` picks a version; default is the latest published.",
  "AGENT-1": "`agent://name` with `{ prompt, context }` calls the configured model and returns the answer.",
  "AGENT-2": "The agent may only call tools in its bound list; results return to it until it is done.",
  "AGENT-3": "Handoff to another agent keeps the conversation and passes the reason.",
  "CFG-1": "Create a tool service by API or UI; configuration is validated whole; usable at once.",
  "CFG-2": "A disabled service refuses calls with a service-disabled error.",
  "CFG-3": "A changed configuration applies at once and does not disturb calls in flight.",
  "CFG-4": "Deleting a referenced service reports the references; a confirmed force deletes.",
  "SVCERR-1":
    "Catalogued error and no side effect for: missing object key, expiry over 7 days; negative or excess delay, oversized or unroutable message; bad address, header newline, missing template variable, `template` together with `body`; bad phone number; unknown, unpublished or recursive flow, absent version; unknown agent, unbound handoff; unknown knowledge base, unsupported document, empty query, `top_k` out of range.",
  "VCP-1":
    "Reads `plugin-manifest.json` (3.1–3.5): all six plugin types, both protocols; every manifest of the two corpora loads, and own fixtures cover every variant of facts s.1.",
  "VCP-2":
    "Order: schema default < global < `config.env` < `.env` < tenant. Values typed; a missing required key disables the plugin with the reason; keys outside the schema pass only from plugin files.",
  "VCP-3":
    "`capabilities.invocationCommands` become the description given to the model. `GET /v1/plugins` shows displayName, version, description, communication.",
  "VCP-4":
    "stdio synchronous: JSON on stdin; stdout must be the specified JSON (`result` string or object, `base64`, `messageForAI`); noise, huge lines, crashes and timeouts are errors that quote what was seen. The manifest example of 3.6 loads verbatim and, with our own script, its example text answers 3.",
  "VCP-5":
    "stdio asynchronous: initial reply (`requestId`, `messageForAI`) relayed at once, background work goes on to its end, `POST /plugin-callback/:pluginName/:taskId` completes it, by token URL or signature (the plain path without either: 401); a callback before the initial reply is kept; a body whose `requestId`/`pluginName` differ from the path: 400, nothing written; every field is kept.",
  "VCP-6":
    "`messagePreprocessor` plugins run in a chain before the model; their order can be changed, also by `GET/POST /admin_api/preprocessors/order`.",
  "VCP-7": "`service` plugins register their own HTTP routes; `hybridservice` does both.",
  "VCP-8":
    "Pipeline order 4.5: Tavern injection, variables, multimodal, RAG, the other preprocessors in `preprocessorOrder`.",
  "VCP-9":
    "Tavern: presets, world books and characters injected as system, user or hidden (hidden: sent to the model as system, absent from answers, history, group chat and pushes).",
  "VCP-10":
    "Tool loop 4.6 over TOOL_REQUEST text, with `maxRecursion`, results and errors appended, base64 through the file API, and an async placeholder inserted and resolved inside the loop.",
  "VCP-11":
    "Async result `{tenant}/VCPAsyncResults/{pluginName}-{taskId}.json`; `{{VCP_ASYNC_RESULT::Plugin::TaskId}}` is replaced when the result exists and by `[任务 {P} (ID: {id}) 结果待更新...]` when not; only own tenant's and session owner's results resolve; ids unique per tenant and plugin.",
  "VCP-12":
    "`webSocketPush`: `enabled`, `messageType`, `usePluginResultAsMessage` (an object result is the frame), `targetClientType` string or null (all), for callbacks and synchronous results.",
  "VCP-13":
    "WebSocket hub: VCPLog, AgentMessage, RAGObserver, callbacks; filtered by `clientType`; works through API Gateway WebSocket and locally.",
  "VCP-14":
    "Group chat events 6.1 with one `messageId` from first chunk to final message: `agent:stream {messageId, chunk, accumulatedContent}`, `agent:speak {message}`, `agent:thinking`, `chat:start/end`, `agent:join/leave`.",
  "VCP-15":
    "Distributed nodes: `register_tools`, `isDistributed`/`serverId`, `execute_tool`, the reply wakes the waiting call; disconnects and timeouts have defined outcomes. An unmodified public node program can connect.",
  "VCP-16":
    "File API 4.0: local first, then `internal_request_file` from the node that has it, base64 back; a `file://` argument becomes a data URI, before the first send where possible, by retry on a missing-file error otherwise.",
  "VCP-17":
    "`WhitelistImageModel` and `WhitelistEmbeddingModel` bypass preprocessing and the tool loop; image models get `generationConfig` where needed; embedding bodies pass byte-identical; authentication and metering still apply.",
  "VCP-18":
    "`POST /v1/schedule_task`: delayed, at a time, and recurring; any TOOL_REQUEST or tool URI inside; list, cancel; precision as MQ-2.",
  "VCP-19":
    "Placeholders: `{{Agent*}}`, `{{agent:*}}`, `{{Tar*}}` (before Var), `{{Var*}}`, `{{Sar*}}` (SarModelX/SarPromptX), `{{VCP_*}}`, `.txt` from `TVStxt/` per tenant, `{{VCPAllTools}}`, `{{VCP<Tool>}}`, dates, `{{EmojiList}}`, `{{ShowBase64}}`; cached; every instance sees a change within 5 s.",
  "VCP-20": "`static` plugins fill placeholders on a schedule.",
  "VCP-21":
    "MCPO both ways: an MCP-format call becomes a VCP instruction and runs; a TOOL_REQUEST reaches an MCP tool; MCP servers mount unchanged.",
  "VCP-22":
    "VCPLog records the call chain and system events with `traceId` (one id with `trace_id` and traceparent), `taskId`, `serverId`, and streams it; every `execute_tool` carries traceId and serverId.",
  "VCP-23":
    "`GET /v1/vcp/runtime` shows staticPlaceholderValues, messagePreprocessors, serviceModules, scheduledJobs, per tenant.",
  "VCP-24":
    "Reported, logged, running state unchanged: broken manifest, duplicate name, unknown type or protocol, bad cron; an order naming unknown or repeated plugins; a schedule in the past, duplicate `task_id`; callback not JSON or oversized; a node's duplicate tools, malformed frame, unknown clientType.",
} as const satisfies Record<string, string>;

export type RequirementId = keyof typeof requirements;
