/** Groups of routes as the documents show them: what a newcomer needs first comes first. */
export interface Tag {
  readonly name: string;
  readonly description: string;
}

export const tags: readonly Tag[] = [
  {
    name: "chat",
    description: "Conversations with a model that may call tools, as OpenAI has them and as typed events.",
  },
  { name: "tools", description: "What a caller may use, and calling it without a chat." },
  { name: "plugins", description: "Tools of your own: one JSON definition each, or many from an OpenAPI document." },
  {
    name: "tool services",
    description: "Back ends with many tools behind one address: HTTP, MCP, gRPC, mail, SMS, storage, brokers.",
  },
  { name: "credentials", description: "Secrets that tools and models need: sealed at once, never shown again." },
  { name: "oauth", description: "Accounts that users connect, for tools that act with each user's own access." },
  {
    name: "calls",
    description: "The record of every chat and tool call: reading, approving, cancelling, running again.",
  },
  { name: "sessions", description: "Workspaces: files that tools of one conversation share." },
  { name: "models", description: "What models there are, and vectors and pictures from them." },
  { name: "providers", description: "Back ends that models come from." },
  { name: "agents", description: "Models with instructions and tools of their own." },
  { name: "group chats", description: "Rooms in which agents and people talk." },
  { name: "flows", description: "Steps that call tools, ask models and people, wait and go on: definitions and runs." },
  { name: "schedules", description: "Calling a tool later, once or again and again." },
  { name: "subscriptions", description: "Messages of brokers that become calls." },
  { name: "knowledge", description: "Documents that models search." },
  { name: "mcp", description: "The tenant's tools for clients of the Model Context Protocol." },
  { name: "nodes", description: "Machines of your own that offer tools." },
  { name: "vcp", description: "Plugins, variables and prompts of VCPToolBox." },
  { name: "realtime", description: "WebSockets that tell of calls as they happen." },
  { name: "webhooks", description: "Being told of calls by HTTP." },
  { name: "api keys", description: "Keys, and what each may do." },
  { name: "issuers", description: "Whose tokens count as keys." },
  { name: "budgets", description: "How many tokens and how much money a tenant, key or user may use." },
  { name: "prices", description: "What models and tools cost." },
  { name: "usage", description: "What was used." },
  { name: "settings", description: "Limits and defaults of a tenant." },
  { name: "configuration", description: "All that a tenant has configured, as one document." },
  { name: "tenants", description: "Tenants, for the operator." },
  { name: "operator", description: "What the operator's tools read." },
  { name: "health", description: "Whether the gateway works." },
  { name: "documentation", description: "These documents." },
];
