/**
 * Can this process serve? The database answers and takes writes, the blob store answers, and each master key that tenants'
 * keys are wrapped under opens them (design "Tenants, callers, secrets": a canary per active key; what is
 * tried are keys of tenants themselves, so that a master key is asked for as long as something needs it and no
 * longer). Credentials that cannot be opened are shown, but keep nobody else from being served.
 */
import { tenantKey, type BlobStore } from "@toolyard/core/ports/blob-store";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { WrappedKeySample } from "@toolyard/core/ports/tenants";
import type { Sealer } from "@toolyard/core/secrets/sealer";
import { countUnreadableCredentials } from "@toolyard/core/secrets/unreadable-credentials";
import type { AppDeps } from "./app-env.ts";
import { describeThrown } from "../describe-thrown.ts";
import { takeDoubt } from "./doubts.ts";

export interface Check {
  readonly name: string;
  readonly ok: boolean;
  readonly detail?: string;
  /** What fails here fails for some only: the process goes on serving everybody else. */
  readonly isPartial?: boolean;
}

const timeoutMs = 5_000;
/** The route is open to everybody; asking often must not become load on the back ends. */
const keptMs = 2_000;
/** No tenant id starts so. */
const probeOwner = "_canary";

const recent = new WeakMap<AppDeps, { readonly at: number; readonly checks: Promise<readonly Check[]> }>();

export async function checkReadiness(app: AppDeps): Promise<readonly Check[]> {
  const checks = await checkParts(app);
  return app.isDraining?.() === true
    ? [...checks, { name: "draining", ok: false, detail: "The process has been told to stop." }]
    : checks;
}

function checkParts(app: AppDeps): Promise<readonly Check[]> {
  const now = app.core.clock.now();
  const known = recent.get(app);
  // A clock that was set back would else have the last answer hold until it is there again.
  if (known !== undefined && Math.abs(now - known.at) < keptMs) return known.checks;
  const checks = runChecks(app);
  recent.set(app, { at: now, checks });
  return checks;
}

function runChecks({ core }: AppDeps): Promise<readonly Check[]> {
  return Promise.all([
    check(core, "database", () => askDatabase(core)),
    check(core, "blobs", () => checkBlobs(core)),
    check(core, "queue", () => core.queue.ping()),
    check(core, "master_key", () => openMasterKeys(core)),
    checkCredentials(core),
  ]);
}

/** What an operator looks at first. */
const settings: Readonly<Record<string, string>> = {
  database: "DATABASE_URL",
  blobs: "BLOBS_URL",
  queue: "QUEUE_URL and QUEUE_LONG_URL",
  master_key: "TOOLYARD_MASTER_KEY and TOOLYARD_PREVIOUS_MASTER_KEYS",
};

async function check(core: CoreDeps, name: string, run: () => Promise<void>): Promise<Check> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error("timeout"), { name: "TimeoutError" })), timeoutMs);
  });
  try {
    await Promise.race([run(), late]);
    return { name, ok: true };
  } catch (thrown) {
    logUnready(core, name, thrown);
    // Which master keys are needed stands in the database.
    const part = thrown instanceof GatewayError && thrown.code === "database_unavailable" ? "database" : name;
    return { name, ok: false, detail: `Check ${settings[part] ?? part}; see the log line 'not ready'.` };
  } finally {
    clearTimeout(timer);
  }
}

/** Messages of our own errors hold no secrets and say what to do; those of others may quote what they were given. */
function logUnready(core: CoreDeps, name: string, thrown: unknown): void {
  const own = thrown instanceof GatewayError ? { code: thrown.code, reason: thrown.message } : {};
  core.log.log("error", "not ready", { check: name, ...own, ...describeThrown(thrown) });
}

async function checkCredentials(core: CoreDeps): Promise<Check> {
  const name = "credentials";
  const counted = await countUnreadableCredentials(core).catch((thrown: unknown) => {
    logUnready(core, name, thrown);
    return 0;
  });
  if (counted === 0) return { name, ok: true };
  core.log.log("error", "stored credentials cannot be opened", { count: counted });
  const detail = `${counted} stored ${counted === 1 ? "credential" : "credentials"} cannot be opened; calls that need one fail with 'credential_unreadable', which names it.`;
  return { name, ok: false, detail, isPartial: true };
}

/** Some databases are paid for by rows written. */
const writtenKeptMs = 60_000;
const writtenUntil = new WeakMap<CoreDeps, number>();

/** Every request writes, so one that can only be read serves nobody; asked again at once where it was not so, or a request failed. */
async function askDatabase(core: CoreDeps): Promise<void> {
  if (takeDoubt(core, "database_unavailable")) writtenUntil.delete(core);
  const now = core.clock.now();
  const writes = now >= (writtenUntil.get(core) ?? 0);
  await core.repos.ping({ writes });
  if (writes) writtenUntil.set(core, now + writtenKeptMs);
}

const provenStores = new WeakSet<BlobStore>();

/**
 * The blob store answers and, asked once by each process and again where a request failed, keeps what was written first: results are
 * written by whoever comes first, and stores that only speak like S3 may not know that condition.
 */
async function checkBlobs(core: CoreDeps): Promise<void> {
  const { blobs } = core;
  if (takeDoubt(core, "blobs_unavailable")) provenStores.delete(blobs);
  // Listed, because a bucket that is not there has no blob of any name either.
  await blobs.list(`${tenantKey(probeOwner)}/`, { limit: 1 });
  if (provenStores.has(blobs)) return;
  const once = tenantKey("_written_once");
  await blobs.put(once, Buffer.from("first"), { ifAbsent: true });
  if (await blobs.put(once, Buffer.from("second"), { ifAbsent: true })) {
    throw new GatewayError(
      "blobs_unavailable",
      "The store at BLOBS_URL overwrites where it was told not to (If-None-Match).",
    );
  }
  provenStores.add(blobs);
}

/** Of each master key so many tenants' keys are tried: one that is damaged says nothing about its master key. */
const keysOfEach = 3;
/** The statement looks at every tenant, and some databases are paid for by rows. */
const samplesKeptMs = 60_000;
/** Where one did not open: somebody may be mending it, and whoever likes may ask. */
const badSamplesKeptMs = 10_000;
const sampled = new WeakMap<CoreDeps, { readonly until: number; readonly samples: readonly WrappedKeySample[] }>();
const ownKeys = new WeakMap<Sealer, string>();

/** Today's master key wraps and opens, and so does each that tenants' keys are wrapped under, for as long as any are. */
async function openMasterKeys(core: CoreDeps): Promise<void> {
  const { sealer, clock, repos } = core;
  const own = ownKeys.get(sealer) ?? (await sealer.newTenantKey(probeOwner));
  ownKeys.set(sealer, own);
  await sealer.openTenantKey(probeOwner, own);
  const now = clock.now();
  const known = sampled.get(core);
  const isKept = known !== undefined && now < known.until;
  const samples = isKept ? known.samples : await repos.tenants.sampleWrappedKeys(keysOfEach);
  if (!isKept) sampled.set(core, { until: now + badSamplesKeptMs, samples });
  for (const ofOne of Map.groupBy(samples, ({ wrappedBy }) => wrappedBy).values()) await openAny(sealer, ofOne);
  if (!isKept) sampled.set(core, { until: now + samplesKeptMs, samples });
}

/** @throws GatewayError what the first met, where none opens; at once where the key service is away */
async function openAny(sealer: Sealer, samples: readonly WrappedKeySample[]): Promise<void> {
  let first: GatewayError | undefined;
  for (const { tenant, wrappedKey } of samples) {
    try {
      await sealer.openTenantKey(tenant, wrappedKey);
      return;
    } catch (thrown) {
      if (!(thrown instanceof GatewayError) || thrown.code !== "credential_unreadable") throw thrown;
      first ??= thrown;
    }
  }
  if (first !== undefined) throw first;
}
