/** What the rooms of the core are made from, all but the tools; composed once per process in functions/compose.ts. */
import type { KillPoint } from "./calls/kill-points.ts";
import type { BlobStore } from "./ports/blob-store.ts";
import type { Clock } from "./ports/clock.ts";
import type { DocumentReader } from "./ports/document-reader.ts";
import type { DataTables } from "./ports/data-tables.ts";
import type { Egress } from "./ports/egress.ts";
import type { Log } from "./ports/log.ts";
import type { MailTransport } from "./ports/mail-transport.ts";
import type { McpCommands } from "./mcp/commands.ts";
import type { PluginRunner } from "./ports/plugin-runner.ts";
import type { MessageBrokers } from "./ports/message-broker.ts";
import type { Replies } from "./ports/replies.ts";
import type { Repos } from "./ports/repos.ts";
import type { TaskQueue } from "./ports/task-queue.ts";
import type { Traces } from "./ports/traces.ts";
import type { Sealer } from "./secrets/sealer.ts";
import type { SettingsCaps } from "./tenants/settings.ts";
import type { FrameSink } from "./realtime/publication.ts";
import type { ConfigCache } from "./config-cache.ts";
import type { TokenSource } from "./oauth/access-token.ts";
import type { OpenBreakers } from "./services/open-breakers.ts";

/** Milliseconds. */
export interface Timing {
  /** How long a running row is its holder's without a sign of life. */
  readonly leaseMs: number;
  readonly heartbeatMs: number;
  /** How often a running chat looks whether it should stop. */
  readonly cancelPollMs: number;
  /** Longest direct tool call that is run while the caller waits; longer ones are queued. */
  readonly invokeBudgetMs: number;
  /** Longest that one process works on a call which can go on elsewhere; below the longest life of an invocation. */
  readonly invocationMs: number;
}

export const defaultTiming: Timing = {
  leaseMs: 60_000,
  heartbeatMs: 20_000,
  cancelPollMs: 2_000,
  invokeBudgetMs: 600_000,
  invocationMs: 780_000,
};

/** What tool adapters are made from. */
export interface AdapterDeps {
  readonly repos: Repos;
  readonly blobs: BlobStore;
  readonly queue: TaskQueue;
  /** From nodes, to whoever waits. */
  readonly answers: Replies;
  readonly sealer: Sealer;
  readonly egress: Egress;
  readonly mail: MailTransport;
  readonly brokers: MessageBrokers;
  /** Access tokens for tools with OAuth 2. */
  readonly tokens: TokenSource;
  readonly clock: Clock;
  readonly log: Log;
  /** Frames that clients are told beside the events of calls; absent: nobody can be told. */
  readonly frames?: FrameSink | undefined;
  readonly configs: ConfigCache;
  /** What this process knows of breakers that any instance has opened. */
  readonly openBreakers: OpenBreakers;
  readonly reach: (point: KillPoint) => void;
  readonly timing: Timing;
  /** Has connections told at once what was written for them. Never throws. */
  readonly tellNow: () => Promise<void>;
  /** Absent: nothing is traced. */
  readonly traces?: Traces | undefined;
  /** Base of links in answers, for example `http://127.0.0.1:8787`; no trailing slash. */
  readonly publicUrl: string;
  /** The operator's upper bounds for tenants' settings. */
  readonly settingsCaps?: SettingsCaps;
  /** Runs programs of the operator's; absent: none can be run here. */
  readonly plugins?: PluginRunner;
  /** Runs what tenants have uploaded, walled off as well as this home can; absent: nothing of that is run here. */
  readonly tenantPlugins?: PluginRunner;
  /** Runs code of models, `confined`; absent: none is run here. */
  readonly codeBox?: PluginRunner;
  /** Reads documents of formats that take a program; absent: text alone can be read here. */
  readonly documents?: DocumentReader;
  /** Answers questions about files of tables; absent: none are asked here. */
  readonly tables?: DataTables;
  /** Programs that the operator offers as MCP servers. */
  readonly mcpCommands?: McpCommands;
  /** Model back end of the operator for tenants without a provider of their own. */
  readonly defaultProvider?: { readonly baseUrl: string; readonly apiKey?: string; readonly model?: string };
}
