/**
 * From settings to a running gateway: adapters are chosen one by one, the database is brought to this
 * release's schema, and the core is put together (design "One core, many homes").
 */
import { randomUUID } from "node:crypto";
import { createEgress } from "@toolyard/core/blind/egress";
import { hashApiKey } from "@toolyard/core/callers/api-key";
import type { Reach } from "@toolyard/core/calls/kill-points";
import { measureCalls } from "@toolyard/core/metrics/measured-calls";
import { ConfigCache } from "@toolyard/core/config-cache";
import { toGatewayError } from "@toolyard/core/errors/gateway-error";
import { defaultTiming, type AdapterDeps, type Timing } from "@toolyard/core/deps";
import type { CoreDeps } from "@toolyard/core/core-deps";
import type { Egress } from "@toolyard/core/ports/egress";
import type { Metrics } from "@toolyard/core/ports/metrics";
import type { Repos } from "@toolyard/core/ports/repos";
import type { Log } from "@toolyard/core/ports/log";
import type { PolledTaskQueue } from "@toolyard/core/ports/task-queue";
import type { RemotePush } from "@toolyard/core/ports/push";
import { CallLogs } from "@toolyard/core/realtime/call-logs";
import { deliverEvents } from "@toolyard/core/realtime/deliver";
import { Listening, watchCalls, watchRuns } from "@toolyard/core/realtime/listening";
import { OpenBreakers, watchBreakers } from "@toolyard/core/services/open-breakers";
import { publish } from "@toolyard/core/realtime/publish";
import { createTokenSource } from "@toolyard/core/oauth/token-source";
import { createBlobLinks } from "@toolyard/core/secrets/blob-links";
import { Sealer } from "@toolyard/core/secrets/sealer";
import { nativePlugins } from "@toolyard/core/tools/native/index";
import { createAdapters, type OpenAdapters } from "@toolyard/core/tools/schemes/index";
import { openDatabase } from "@toolyard/db/client";
import { checkSchema, migrate } from "@toolyard/db/migrate";
import { createDatabaseReplies } from "@toolyard/db/replies";
import { createRepos } from "@toolyard/db/repos/index";
import { openShards, type OpenShards } from "@toolyard/db/shards";
import type { ExportedTraces } from "@toolyard/platform/otlp/otlp-traces";
import { createMessageBrokers } from "@toolyard/platform/mq/message-brokers";
import { createSmtpTransport } from "@toolyard/platform/smtp/smtp-transport";
import { createSystemClock } from "@toolyard/platform/system-clock";
import {
  createBlobs,
  createProgramRunners,
  createPush,
  createQueue,
  createVault,
  fileIn,
  lateDocuments,
  lateTables,
  servesOwnBlobs,
} from "./adapters.ts";
import { EnvironmentError, type Environment } from "./env.ts";
import type { AppDeps } from "./http/app-env.ts";
import { version } from "./version.ts";

/** What differs between the homes, and between a test and the real thing. */
export interface Home {
  readonly log: Log;
  readonly metrics: Metrics;
  /** Metrics as Prometheus reads them, where this home has somebody who asks. */
  readonly metricsText?: () => Promise<string>;
  readonly publicUrl: string;
  readonly adminKey: string;
  readonly masterKey: string;
  /** Directory for what no URL places elsewhere; functions have none. */
  readonly dataDir: string | undefined;
  /** CIDRs that tools may reach where TOOLYARD_EGRESS_ALLOW says nothing. */
  readonly egressAllow: readonly string[];
  /** Bring the database to this release's schema; else it must be there already. */
  readonly migrates: boolean;
  readonly defaultTenant?: string;
  /** Instead of the one that PUSH_URL names. */
  readonly push?: RemotePush;
  readonly isDraining?: () => boolean;
  readonly reach?: Reach;
  readonly timing?: Timing;
  /** Answers about tool services of every scheme; else a scheme is read when a tenant has a service of it. */
  readonly readsAllSchemes: boolean;
  /** Send spans in batches from time to time; else only when told to. */
  readonly sendsTraces: boolean;
}

export interface Composition {
  readonly app: AppDeps;
  readonly queue: PolledTaskQueue;
  /** To connections that are not held by server processes. */
  readonly push?: RemotePush;
  /** Called when a message has been sent, so that workers of this process look at once. */
  onSent: (() => void) | undefined;
  /** Before a process may be frozen. Takes no longer than `flushTracesMs`. */
  flushTraces(): Promise<void>;
  readonly realtime: Realtime;
  close(): Promise<void>;
}

/** What a home has to do with connected clients. */
export interface Realtime {
  readonly listening: Listening;
  /** To be flushed when `onLogLine` was called, or before a function may be frozen. */
  readonly callLogs: CallLogs;
  onLogLine: (() => void) | undefined;
  /** Called where connections of this process have to hear of something at once. */
  onTell: (() => void) | undefined;
}

/** A request to a function waits no longer than this for the collector. */
const flushTracesMs = 1_000;
/** A process that is told to stop waits this long for it. */
const lastTracesMs = 3_000;

/** @throws EnvironmentError, GatewayError `database_unavailable`, `conflict`, `invalid_request`, each naming the setting */
export async function compose(environment: Environment, home: Home): Promise<Composition> {
  const realtime = openRealtime(home.log, () => repos);
  const log = realtime.callLogs;
  for (const { name, meant } of environment.unknown) {
    const hint = meant === undefined ? "" : `; '${meant}' may be meant`;
    log.log("warn", "a variable that is no setting was passed over", { reason: `There is no '${name}'${hint}.` });
  }
  const clock = createSystemClock();
  const vault = await createVault(environment, home.masterKey);
  const shards = await openAllShards(environment, home);
  const stored = createRepos(shards, {
    onBrokenRow: ({ table, tenant, id, name, reason }) =>
      log.log("error", "a stored row cannot be read", {
        table,
        tenant,
        row: name === undefined ? id : `${id} '${name}'`,
        error: reason,
      }),
    ...(environment.settingsCaps === undefined ? {} : { caps: environment.settingsCaps }),
  });
  const openBreakers = new OpenBreakers();
  const measured = measureCalls(stored, home.metrics, clock);
  const repos: Repos = {
    ...stored,
    calls: watchBreakers(watchCalls(measured.calls, realtime.listening), openBreakers),
    flowRuns: watchRuns(measured.flowRuns, realtime.listening),
  };
  if (home.migrates) await repos.plugins.mirrorNative(nativePlugins());
  const egress = openDoor(environment, home);
  const push = home.push ?? (await createPush(environment));
  const exported = await openTraces(environment, home);
  const composition: { onSent: (() => void) | undefined } = { onSent: undefined };
  const queue = announceSending(await createQueue(environment, shards), () => composition.onSent?.());
  const tokenDeps = {
    repos,
    sealer: new Sealer(vault, clock),
    egress,
    clock,
    log,
    traces: exported?.traces,
    timing: home.timing ?? defaultTiming,
    publicUrl: home.publicUrl,
  };
  const blobLinks = createBlobLinks({ ...tokenDeps, tenants: repos.tenants });
  const adapterDeps: AdapterDeps = {
    ...tokenDeps,
    mail: createSmtpTransport({ egress }),
    brokers: createMessageBrokers({ egress }),
    documents: lateDocuments,
    tables: lateTables,
    tokens: createTokenSource(tokenDeps),
    blobs: await createBlobs(environment, home.dataDir, blobLinks.presign),
    queue,
    answers: createDatabaseReplies(shards, clock),
    tellNow: () => tellNow({ repos, log }, { push, realtime }),
    openBreakers,
    frames: realtime.callLogs,
    configs: new ConfigCache(repos.config, (config) => schemes.loadFor(config)),
    reach: home.reach ?? (() => undefined),
    ...(environment.settingsCaps === undefined ? {} : { settingsCaps: environment.settingsCaps }),
    ...defaultProvider(environment),
    ...(await createProgramRunners(environment, { isServer: home.dataDir !== undefined, log })),
  };
  const schemes: OpenAdapters = createAdapters(adapterDeps);
  if (home.readsAllSchemes) await schemes.loadAll();
  const { core } = schemes;
  return Object.assign(composition, {
    queue,
    realtime,
    ...(push === undefined ? {} : { push }),
    app: {
      core,
      adminKeyHash: hashApiKey(home.adminKey),
      version,
      mcpOrigins: environment.mcpOrigins,
      ...(servesOwnBlobs(environment) ? { blobLinks } : {}),
      metrics: home.metrics,
      ...(environment.wsUrl === undefined ? {} : { wsUrl: environment.wsUrl }),
      ...(home.metricsText === undefined ? {} : { metricsText: home.metricsText }),
      ...(home.defaultTenant === undefined ? {} : { defaultTenant: home.defaultTenant }),
      ...(home.isDraining === undefined ? {} : { isDraining: home.isDraining }),
      ...(environment.securityContact === undefined ? {} : { securityContact: environment.securityContact }),
    },
    flushTraces: async () => exported?.traces.flush(flushTracesMs),
    async close() {
      await schemes.close();
      await exported?.close();
      await egress.close();
      await shards.close();
    },
  });
}

/**
 * Brings every database to this release's schema, before functions of this release get traffic; those of
 * the release before keep serving meanwhile.
 *
 * @param steps where a bundle has its copy of the SQL files
 */
export async function migrateDatabases(
  environment: Environment,
  { dataDir, steps }: { readonly dataDir?: string; readonly steps?: URL },
): Promise<void> {
  const shards = await openAllShards(environment, {
    dataDir,
    migrates: true,
    ...(steps === undefined ? {} : { steps }),
  });
  try {
    await createRepos(shards).plugins.mirrorNative(nativePlugins());
  } finally {
    await shards.close();
  }
}

/** Makes the tenant for whom a newcomer's first request is; several processes may try at once. */
export async function ensureTenant(
  core: CoreDeps,
  tenant: { readonly id: string; readonly name: string },
): Promise<void> {
  const { tenants } = core.repos;
  if ((await tenants.get(tenant.id)) !== undefined) return;
  const wrappedKey = await core.sealer.newTenantKey(tenant.id);
  try {
    await tenants.create({ ...tenant, wrappedKey, settings: {} });
  } catch (error) {
    if ((await tenants.get(tenant.id)) === undefined) throw error;
  }
}

/** @param repos as soon as they are there */
function openRealtime(log: Log, repos: () => Repos): Realtime {
  const listening = new Listening();
  const realtime: Pick<Realtime, "onLogLine" | "onTell"> = { onLogLine: undefined, onTell: undefined };
  const callLogs = new CallLogs({
    log,
    listening,
    write: (tenant, lines) => publish({ repos: repos() }, tenant, lines),
    onLine: () => realtime.onLogLine?.(),
  });
  return Object.assign(realtime, { listening, callLogs });
}

/** To the sockets that this process holds, and to those that none does. */
async function tellNow(
  deps: { readonly repos: Repos; readonly log: Log },
  { push, realtime }: { readonly push: RemotePush | undefined; readonly realtime: Realtime },
): Promise<void> {
  realtime.onTell?.();
  if (push === undefined) return;
  try {
    await deliverEvents(deps, push);
  } catch (thrown) {
    deps.log.log("warn", "events were not pushed and are left to the tick", { code: toGatewayError(thrown).code });
  }
}

function openDoor(environment: Environment, { egressAllow }: Home): Egress {
  try {
    return createEgress({
      allowCidrs: environment.egressAllow ?? egressAllow,
      deniedEndpoints: ownEndpoints(environment),
    });
  } catch (cause) {
    throw new EnvironmentError([`TOOLYARD_EGRESS_ALLOW: ${cause instanceof Error ? cause.message : "cannot be used"}`]);
  }
}

interface Exported {
  readonly traces: ExportedTraces;
  close(): Promise<void>;
}

/**
 * The collector is the operator's and often a neighbour, so that its door has none of the tools' rules,
 * and tools cannot reach it through theirs. Nothing of it is loaded where nothing is traced.
 */
async function openTraces({ traces: settings }: Environment, home: Home): Promise<Exported | undefined> {
  if (settings === undefined) return undefined;
  const { createOtlpTraces } = await import("@toolyard/platform/otlp/otlp-traces");
  const { serviceName, resourceAttributes, timeoutMs, ...options } = settings;
  const egress = createEgress({ allowCidrs: ["0.0.0.0/0", "::/0"] });
  const traces = createOtlpTraces(
    {
      ...options,
      timeoutMs: home.sendsTraces ? timeoutMs : Math.min(timeoutMs, flushTracesMs),
      resource: {
        attributes: {
          "service.name": serviceName,
          "service.version": version,
          "service.instance.id": randomUUID(),
          "telemetry.sdk.name": "toolyard",
          "telemetry.sdk.language": "nodejs",
          "telemetry.sdk.version": version,
          ...resourceAttributes,
        },
        scope: { name: "toolyard", version },
      },
      everyMs: home.sendsTraces ? settings.everyMs : undefined,
    },
    { egress, log: home.log },
  );
  return {
    traces,
    async close() {
      await traces.close(lastTracesMs);
      await egress.close();
    },
  };
}

interface ShardOpening extends Pick<Home, "migrates"> {
  readonly dataDir?: string | undefined;
  readonly steps?: URL;
}

async function openAllShards(
  environment: Environment,
  { dataDir, migrates, steps }: ShardOpening,
): Promise<OpenShards> {
  const { databaseAuthToken: authToken } = environment;
  const open = async (url: string): ReturnType<typeof openDatabase> => {
    const database = await openDatabase({ url, ...(authToken === undefined ? {} : { authToken }) });
    try {
      await (migrates ? migrate(database, steps === undefined ? {} : { directory: steps }) : checkSchema(database));
    } catch (error) {
      await database.close();
      throw error;
    }
    return database;
  };
  const directory = await open(environment.databaseUrl ?? fileIn(dataDir, "toolyard.db", "DATABASE_URL"));
  return openShards(directory, open);
}

/** What tools must never talk to, whatever else is open to them: our own database, queues, stores and collector, the runtime of the function. */
function ownEndpoints({ databaseUrl, queues, pushUrl, awsEndpoints, traces, lambda }: Environment): readonly string[] {
  const runtimeApi = lambda?.runtimeApi;
  const urls = [databaseUrl, queues?.short, queues?.long, pushUrl, traces?.url, ...awsEndpoints].filter(
    (url) => url !== undefined,
  );
  return [...urls.flatMap(endpointsOf), ...(runtimeApi === undefined ? [] : [runtimeApi])];
}

function endpointsOf(url: string): readonly string[] {
  const [, scheme, host, port] = /^(https?|libsql):\/\/(\[[^\]]+\]|[^:/?#]+)(?::(\d+))?/.exec(url) ?? [];
  if (scheme === undefined || host === undefined) return [];
  const at = port ?? (scheme === "http" ? "80" : "443");
  if (host === "localhost") return [`127.0.0.1:${at}`, `[::1]:${at}`];
  return /^[\d.]+$|^\[/.test(host) ? [`${host}:${at}`] : [];
}

function defaultProvider({
  openaiApiKey,
  openaiBaseUrl,
  defaultModel,
}: Environment): Pick<CoreDeps, "defaultProvider"> {
  if (openaiApiKey === undefined && openaiBaseUrl === undefined) return {};
  return {
    defaultProvider: {
      baseUrl: openaiBaseUrl ?? "https://api.openai.com/v1",
      ...(openaiApiKey === undefined ? {} : { apiKey: openaiApiKey }),
      ...(defaultModel === undefined ? {} : { model: defaultModel }),
    },
  };
}

function announceSending(queue: PolledTaskQueue, announce: () => void): PolledTaskQueue {
  return {
    ...queue,
    async send(name, messages, options) {
      await queue.send(name, messages, options);
      announce();
    },
  };
}

/** Keys and secrets that a function cannot make for itself. @throws EnvironmentError */
export function requireKeys({ adminKey, masterKey }: Environment): {
  readonly adminKey: string;
  readonly masterKey: string;
} {
  if (adminKey !== undefined && masterKey !== undefined) return { adminKey, masterKey };
  const missing = [
    ...(adminKey === undefined ? ["TOOLYARD_ADMIN_KEY"] : []),
    ...(masterKey === undefined ? ["TOOLYARD_MASTER_KEY"] : []),
  ];
  throw new EnvironmentError(missing.map((name) => `${name}: must be set where there is no data directory`));
}
