/**
 * A request of each route that takes a body worth showing, for the documents about the routes. A test holds
 * them against the validators, and against the list of routes. Here and not with the routes, since only those
 * who read the documents need them.
 */
const definition = {
  schema_version: "v1",
  name: "customer_orders",
  description: "Orders of one customer, newest first.",
  parameters: {
    type: "object",
    properties: { id: { type: "string" }, limit: { type: "integer", default: 20 } },
    required: ["id"],
  },
  execution: {
    method: "GET",
    base_url: "https://crm.example.com/v1/customers/{id}/orders",
    content_type: "application/json",
    param_placement: "path",
  },
  auth_config: { type: "bearer", mapping: [{ source: "CRM_TOKEN" }] },
};

const flow = {
  schema_version: 1,
  name: "order_status",
  description: "Looks up what a customer has ordered.",
  input: { type: "object", properties: { customer: { type: "string" } }, required: ["customer"] },
  start: "find",
  nodes: {
    find: { kind: "tool", name: "customer_orders", arguments: { id: { $: "input.customer" } }, next: "done" },
    done: { kind: "end", output: { orders: { $: "steps.find.output" } } },
  },
};

const messages = [{ role: "user", content: "What has customer C001 ordered?" }];
const call = { name: "customer_orders", arguments: { id: "C001" } };
const listTools = { jsonrpc: "2.0", id: 1, method: "tools/list" };
const document = { knowledge_base: "handbook", document_id: "leave" };
const configuration = { settings: { rounds: 12 }, agents: [{ name: "support", tools: ["customer_orders"] }] };

/** By the name of the operation. */
export const requestExamples: Readonly<Record<string, unknown>> = {
  chatCompletions: { messages },
  typedChatCompletions: { session_id: "9f0c6a52-orders", messages },
  vcpChatCompletions: { model: "smart", messages, stream: true },
  humanTool:
    "<<<[TOOL_REQUEST]>>>\ntool_name:「始」SciCalculator「末」,\nexpression:「始」1+2「末」\n<<<[END_TOOL_REQUEST]>>>",
  interrupt: { requestId: "7c2f" },

  invokeTool: call,
  explainTool: call,

  createPlugin: definition,
  replacePlugin: { ...definition, description: "Orders of one customer, newest first, with their state." },
  updatePlugin: { enabled: false },
  importPlugins: { url: "https://crm.example.com/openapi.json", include: ["tag:orders"], dry_run: true },
  putPluginConfig: { values: { API_KEY: "the-key" } },
  putVcpConfig: { values: { API_KEY: "the-key" } },

  createToolService: {
    scheme: "api",
    service_id: "crm",
    config: {
      base_url: "https://crm.example.com/v1",
      auth_type: "bearer",
      auth_config: { token: { credential: "CRM_TOKEN" } },
      tools: { customer_get: { description: "One customer.", endpoint: "/customers/{id}" } },
    },
  },
  updateToolService: { config: { tools: { customer_get: { description: "One customer by its number." } } } },
  acceptToolServiceTools: { tools: [{ id: "map_ip_location", hash: "2c26b46b68ffc68ff99b453c1d304134" }] },
  importToolService: { url: "https://crm.example.com/openapi.json", dry_run: true },

  putCredential: { value: "the-token" },
  createConnection: { tool: "customer_orders" },

  createResultDownload: { expires_in_ms: 900_000 },
  approveCall: { reason: "Seen and agreed." },
  rejectCall: { reason: "Not this customer." },
  replayCall: { confirm: true },

  createUpload: { path: "data/orders.csv", bytes: 73_400_320, media_type: "text/csv" },
  completeUpload: { replace: true },
  createDownload: { path: "data/orders.csv" },

  createProvider: {
    name: "openai",
    kind: "openai",
    base_url: "https://api.openai.com/v1",
    credential: "OPENAI_KEY",
    models: { smart: "gpt-5.2", vectors: "text-embedding-3-small" },
  },
  updateProvider: { priority: 50 },
  createEmbedding: { model: "vectors", input: "Hello" },
  createImage: { model: "pictures", prompt: "A harbour at dawn" },

  createAgent: {
    name: "support",
    description: "Answers customers.",
    instructions: "Look orders up before you say anything about them.",
    tools: ["customer_orders", "api://crm/*"],
    limits: { rounds: 8 },
  },
  updateAgent: { tools: ["customer_orders"] },

  createGroupChat: { name: "harbour", mode: "mentioned", members: [{ kind: "agent", name: "support" }] },
  updateGroupChat: { topic: "Ships" },
  joinGroupChat: { kind: "agent", name: "support", display_name: "Ada" },
  speakInGroupChat: { content: "@Ada, how many ships are due?", wait: true },
  redoGroupChat: { wait: true },

  createFlow: { definition: flow, publish: true },
  validateFlow: { definition: flow },
  updateFlow: { definition: { ...flow, description: "Looks up all that a customer has ordered." } },
  runWorkflow: { workflow_id: "order_status", input: { customer: "C001" } },
  signalRun: { name: "paid", token: "payment-4711", payload: { amount: 5 } },
  approveRun: { input: { note: "by phone" } },
  rejectRun: { reason: "Too much." },
  resumeRun: { step: "book", input: { decision: "retry" } },
  replayRun: { from: "find" },
  createFlowHook: { name: "shop", signed: true },
  updateFlowHook: { enabled: false },
  takeFlowHook: { customer: "C001" },
  rotateFlowHook: { signed: true },

  createSchedule: {
    name: "New orders",
    cron: "0 9 * * 1-5",
    time_zone: "Europe/Berlin",
    task: { uri: "customer_orders", arguments: { id: "C001" } },
  },

  createSubscription: {
    name: "sync-orders",
    uri: "mq://order-service/order_created",
    target: { uri: "api://crm/customer_get", arguments: { id: { $message: "/body/customer" } } },
  },
  updateSubscription: { options: { prefetch: 16 } },

  createKnowledgeBase: { name: "handbook", config: { embedding: { model: "vectors" } } },
  updateKnowledgeConfig: { knowledge_base: "handbook", config: { top_k: 5 } },
  deleteKnowledgeBase: { knowledge_base: "handbook" },
  listKnowledgeBases: { limit: 20 },
  upsertKnowledgeDocument: { ...document, name: "leave.md", text: "# Leave\n\nEverybody has 30 days of leave." },
  listKnowledgeDocuments: { knowledge_base: "handbook", state: "failed" },
  getKnowledgeDocument: document,
  deleteKnowledgeDocument: document,
  retryKnowledgeDocument: document,
  queryKnowledge: { knowledge_base: "handbook", query: "How many days of leave?" },

  mcp: listTools,
  mcpToolset: listTools,

  pluginCallback: { requestId: "task-1", pluginName: "Plugin", status: "Succeed", message: "Ready." },
  pluginCallbackByToken: { requestId: "task-1", pluginName: "Plugin", status: "Succeed", message: "Ready." },
  createVcpVariable: { kind: "var", name: "VarCity", content: "杭州" },
  previewVcpVariables: { messages: [{ role: "system", content: "You live in {{VarCity}}. Today is {{Date}}." }] },
  importVcpVariables: { files: [{ path: "config.env", content: "VarCity=杭州" }] },
  updateVcpVariable: { content: "北京" },
  setPreprocessorOrder: { order: ["Glossary"] },
  putPreset: { rules: [{ type: "embed", target: "system", position: "after", content: "Be {{VarMood}}." }] },
  putWorldBook: { entries: [{ keys: ["harbour"], content: "The harbour freezes in January." }] },
  putCharacter: { name: "Pilot", description: "Knows every ship by its sound." },
  importWorldBook: { entries: { 0: { key: ["harbour"], content: "The harbour freezes in January." } } },
  importCharacter: {
    spec: "chara_card_v2",
    spec_version: "2.0",
    data: { name: "Pilot", description: "Knows every ship by its sound." },
  },

  createWebhook: { name: "ours", url: "https://hooks.example.com/toolyard", events: ["call.failed", "call.unknown"] },
  updateWebhook: { enabled: true },
  rotateWebhookSecret: { overlap_s: 3_600 },

  createApiKey: { name: "crm bot", scopes: ["chat", "tools"], tools: ["customer_*", "api://crm/*"], user_id: "ann" },
  createIssuer: {
    issuer: "https://login.example.com/",
    audience: "toolyard",
    jwks_url: "https://login.example.com/jwks.json",
    claims: { role: "realm_access.roles" },
  },
  updateIssuer: { default_scopes: ["chat"] },

  createBudget: { scope: "user", scope_id: "ann", period: "day", limit_tokens: 500_000 },
  updateBudget: { limit_tokens: 1_000_000 },
  putPrices: {
    prices: [
      { kind: "model", pattern: "smart", prompt_per_mtok: 2_500_000, completion_per_mtok: 10_000_000 },
      { kind: "tool", pattern: "customer_*", per_call: 5_000 },
    ],
  },
  putOperatorPrices: {
    prices: [{ kind: "model", pattern: "gpt-5*", prompt_per_mtok: 2_500_000, completion_per_mtok: 10_000_000 }],
  },

  updateSettings: { default_model: "smart", rounds: 12, tool_timeout_ms: null },
  planConfiguration: { configuration },
  applyConfiguration: { configuration },
  createTenant: { name: "Acme" },
  updateTenant: { status: "suspended" },
};
