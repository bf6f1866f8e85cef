/**
 * Every error that a caller, a model or an operator can see. The code is spelled here once and is
 * the wire code; status, type and retry advice follow from it in all renderers.
 */

/** OpenAI's error types plus `tool_execution_error` (chat specification, "错误处理"). */
export type ErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "permission_error"
  | "not_found_error"
  | "rate_limit_error"
  | "tool_execution_error"
  | "api_error";

export interface ErrorSpec {
  readonly http: number;
  readonly type: ErrorType;
  /** May the same request succeed later without being changed? */
  readonly retryable: boolean;
}

const invalid = (http = 400): ErrorSpec => ({ http, type: "invalid_request_error", retryable: false });
const missing = (): ErrorSpec => ({ http: 404, type: "not_found_error", retryable: false });
const tool = (http: number, retryable = false): ErrorSpec => ({ http, type: "tool_execution_error", retryable });

export const catalog = {
  // The request
  invalid_request: invalid(),
  invalid_json: invalid(),
  invalid_uri: invalid(),
  invalid_arguments: invalid(),
  invalid_definition: invalid(),
  invalid_conversation: invalid(),
  method_not_allowed: invalid(405),
  unsupported_media_type: invalid(415),
  payload_too_large: invalid(413),
  /** What stands for placeholders comes to too much. */
  placeholder_limit: invalid(422),
  /** A WebSocket's address was asked for something else. */
  upgrade_required: invalid(426),
  /** A route that answers whole was asked for a WebSocket, or its answer has no end. */
  stream_not_carried: invalid(501),
  /** A document that is not what it says, is damaged, or holds no text. */
  document_unreadable: invalid(422),
  /** A document, or what is in it, is larger than one may be. */
  document_too_large: invalid(413),
  /** As many bases, documents, bytes or chunks as the tenant may have. */
  knowledge_full: invalid(409),
  request_timeout: { http: 408, type: "invalid_request_error", retryable: true },
  conflict: { http: 409, type: "invalid_request_error", retryable: false },
  /** Somebody else has changed the object since it was read. */
  version_conflict: invalid(412),
  confirmation_required: { http: 409, type: "invalid_request_error", retryable: false },
  // Who asks
  invalid_api_key: { http: 401, type: "authentication_error", retryable: false },
  invalid_ticket: { http: 401, type: "authentication_error", retryable: false },
  /** A plugin's callback without its token or a signature. */
  invalid_callback_proof: { http: 401, type: "authentication_error", retryable: false },
  invalid_token: { http: 401, type: "authentication_error", retryable: false },
  /** A token cannot be checked because its issuer's keys cannot be fetched. */
  issuer_unavailable: { http: 503, type: "api_error", retryable: true },
  tenant_required: { http: 400, type: "invalid_request_error", retryable: false },
  tenant_suspended: { http: 403, type: "permission_error", retryable: false },
  permission_denied: { http: 403, type: "permission_error", retryable: false },
  /** A link for one request, made for somebody without a key. */
  link_invalid: { http: 403, type: "permission_error", retryable: false },
  link_expired: { http: 410, type: "permission_error", retryable: false },
  // What is asked for
  not_found: missing(),
  model_not_found: { http: 404, type: "invalid_request_error", retryable: false },
  tool_not_found: { http: 404, type: "invalid_request_error", retryable: false },
  agent_not_found: missing(),
  agent_disabled: { http: 403, type: "invalid_request_error", retryable: false },
  session_not_found: missing(),
  file_not_found: missing(),
  object_not_found: missing(),
  /** Flows, agents, keys or calls still use it; a confirmed force deletes. */
  service_referenced: { http: 409, type: "invalid_request_error", retryable: false },
  /** Its back end describes it otherwise than was accepted. */
  tool_quarantined: { http: 403, type: "permission_error", retryable: false },
  service_disabled: { http: 403, type: "invalid_request_error", retryable: false },
  // Limits
  rate_limited: { http: 429, type: "rate_limit_error", retryable: true },
  concurrency_limited: { http: 429, type: "rate_limit_error", retryable: true },
  /** Sent again in the same window it meets the same budget; `retry_after_ms` says when the window ends. */
  budget_exceeded: { http: 429, type: "rate_limit_error", retryable: false },
  price_missing: invalid(),
  session_expired: { http: 410, type: "invalid_request_error", retryable: false },
  upload_incomplete: { http: 409, type: "invalid_request_error", retryable: true },
  workspace_full: { http: 413, type: "invalid_request_error", retryable: false },
  /** A knowledge base without an embedding model was asked for what needs vectors. */
  embedding_missing: invalid(409),
  /** Documents have vectors of another size than the model makes now. */
  embedding_mismatch: invalid(409),
  /** More chunks than vectors are compared with. */
  knowledge_too_large: invalid(422),
  // Idempotency and continuing
  idempotency_key_reused: invalid(422),
  idempotency_in_progress: { http: 409, type: "invalid_request_error", retryable: true },
  runtime_config_required: { http: 409, type: "invalid_request_error", retryable: false },
  tool_turn_incomplete: invalid(),
  tool_turn_expired: { http: 410, type: "invalid_request_error", retryable: false },
  // Credentials
  credential_missing: { http: 400, type: "invalid_request_error", retryable: false },
  credential_unreadable: { http: 500, type: "api_error", retryable: false },
  credential_invalid: invalid(),
  /** A user's access was asked for and not given. */
  connection_refused: invalid(),
  // Tools
  tool_failed: tool(502),
  tool_timeout: tool(504),
  tool_unreachable: tool(502, true),
  /** What is called is held on a node of the tenant's, and that node is not there. */
  node_required: tool(503, true),
  /** There is nothing here in which code could be run that nobody has looked at. */
  code_box_unavailable: tool(503),
  /** The back end puts it off and has not taken it: too much at once, greylisting. */
  tool_deferred: tool(503, true),
  /** Its service has failed too often; `retry_after_ms` says when it is tried again. */
  circuit_open: { http: 503, type: "tool_execution_error", retryable: true },
  tool_output_too_large: tool(502),
  /** The vendor sends templates only, and none was given. */
  sms_plain_unsupported: invalid(),
  egress_denied: { http: 403, type: "permission_error", retryable: false },
  outcome_unknown: tool(502),
  call_cancelled: tool(409),
  call_rejected: tool(409),
  /** The back end asked a person for something; the call goes on once it is answered. */
  input_required: { http: 409, type: "tool_execution_error", retryable: false },
  approval_required: { http: 403, type: "permission_error", retryable: false },
  call_interrupted: tool(502, true),
  /** One process after the other has ended over it, so that it is not carried out again. */
  call_abandoned: tool(502),
  call_not_finished: { http: 409, type: "invalid_request_error", retryable: true },
  // Agents
  /** The agent may not call it, whether or not its caller may. */
  tool_not_bound: tool(403),
  /** The conversation has changed hands too often. */
  handoffs_exceeded: tool(422),
  /** It went round and round without anything being done. */
  handoff_loop: tool(422),
  /** Agents call agents call agents. */
  depth_exceeded: tool(422),
  // The loop
  rounds_exceeded: tool(422),
  calls_exceeded: tool(422),
  repeated_call: tool(422),
  wall_clock_exceeded: tool(422),
  cost_exceeded: tool(422),
  /** Who leads a group chat has not said who is next. */
  moderator_undecided: tool(502),
  /** An agent of a group chat has said more than a message holds. */
  message_too_long: tool(422),
  chat_interrupted: { http: 409, type: "api_error", retryable: false },
  request_cancelled: { http: 499, type: "invalid_request_error", retryable: false },
  // Flows
  /** A published definition has faults, or a draft has and should be published; `problems` has all of them. */
  flow_invalid: invalid(),
  flow_expression_failed: tool(422),
  /** One of its nodes has failed; `failure` says which, and with what. */
  flow_failed: tool(422),
  flow_depth_exceeded: tool(422),
  flow_steps_exceeded: tool(422),
  flow_step_timeout: tool(504),
  /** Whether a step took effect is not known, and it is not done again by itself. */
  flow_step_unknown: tool(502),
  flow_not_found: { http: 404, type: "invalid_request_error", retryable: false },
  // Model back ends
  provider_failed: { http: 502, type: "api_error", retryable: false },
  provider_unavailable: { http: 503, type: "api_error", retryable: true },
  provider_rate_limited: { http: 429, type: "rate_limit_error", retryable: true },
  provider_rejected: invalid(),
  /** Refused like `provider_rejected`, under the codes that OpenAI's clients act on. */
  context_length_exceeded: invalid(),
  content_filter: invalid(),
  /** What an embedding model answered does not fit what it was asked. */
  embedding_invalid: { http: 502, type: "api_error", retryable: false },
  provider_stream_incomplete: { http: 502, type: "api_error", retryable: true },
  // Ourselves
  blobs_unavailable: { http: 503, type: "api_error", retryable: true },
  database_unavailable: { http: 503, type: "api_error", retryable: true },
  queue_unavailable: { http: 503, type: "api_error", retryable: true },
  /** The service that holds the master key does not answer, or does not let us use it; what is sealed is not lost. */
  master_key_unavailable: { http: 503, type: "api_error", retryable: true },
  push_unavailable: { http: 503, type: "api_error", retryable: true },
  shutting_down: { http: 503, type: "api_error", retryable: true },
  internal_error: { http: 500, type: "api_error", retryable: false },
} as const satisfies Record<string, ErrorSpec>;

export type ErrorCode = keyof typeof catalog;

export function isErrorCode(value: string): value is ErrorCode {
  return Object.hasOwn(catalog, value);
}
