/**
 * Can this process serve? The database answers, the blob store answers, and each master key in use
 * still opens what it sealed (design "Tenants, callers, secrets": a canary per active key). Credentials
 * that cannot be opened are shown, but keep nobody else from being served.
 */
import { tenantKey, readAll, type BlobStore } from "@toolyard/core/ports/blob-store";
import type { CoreDeps } from "@toolyard/core/deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { parseJson } from "@toolyard/core/json";
import { countUnreadableCredentials } from "@toolyard/core/secrets/unreadable-credentials";
import * as z from "zod";
import type { AppDeps } from "./app-env.ts";
import { describeThrown } from "./describe-thrown.ts";

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
const canaryOwner = "_canary";
const canarySchema = z.strictObject({ wrappedKey: z.string(), sealed: z.string() });

const recent = new WeakMap<AppDeps, { readonly at: number; readonly checks: Promise<readonly Check[]> }>();

export function checkReadiness(app: AppDeps): Promise<readonly Check[]> {
  const now = app.core.clock.now();
  const known = recent.get(app);
  if (known !== undefined && now - known.at < keptMs) return known.checks;
  const checks = runChecks(app);
  recent.set(app, { at: now, checks });
  return checks;
}

async function runChecks({ core, isDraining }: AppDeps): Promise<readonly Check[]> {
  const checks = [
    check(core, "database", () => core.repos.ping()),
    check(core, "blobs", () => checkBlobs(core)),
    check(core, "queue", () => core.queue.ping()),
    check(core, "master_key", () => openCanaries(core)),
    checkCredentials(core),
  ];
  const done = await Promise.all(checks);
  return isDraining?.() === true
    ? [...done, { name: "draining", ok: false, detail: "The process has been told to stop." }]
    : done;
}

/** What an operator looks at first. */
const settings: Readonly<Record<string, string>> = {
  database: "DATABASE_URL",
  blobs: "BLOBS_URL",
  queue: "QUEUE_URL and QUEUE_LONG_URL",
  master_key: "TOOLYARD_MASTER_KEY",
};

async function check(core: CoreDeps, name: string, run: () => Promise<void>): Promise<Check> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error("timeout")), timeoutMs);
  });
  try {
    await Promise.race([run(), late]);
    return { name, ok: true };
  } catch (thrown) {
    core.log.log("error", "not ready", { check: name, ...describeThrown(thrown) });
    return { name, ok: false, detail: `Check ${settings[name] ?? name}; see the log line 'not ready'.` };
  } finally {
    clearTimeout(timer);
  }
}

async function checkCredentials(core: CoreDeps): Promise<Check> {
  const name = "credentials";
  const counted = await countUnreadableCredentials(core).catch((thrown: unknown) => {
    core.log.log("error", "not ready", { check: name, ...describeThrown(thrown) });
    return 0;
  });
  if (counted === 0) return { name, ok: true };
  core.log.log("error", "stored credentials cannot be opened", { count: counted });
  const detail = `${counted} stored ${counted === 1 ? "credential" : "credentials"} cannot be opened; calls that need one fail with 'credential_unreadable', which names it.`;
  return { name, ok: false, detail, isPartial: true };
}

const provenStores = new WeakSet<BlobStore>();

/**
 * The blob store answers and, asked once by each process, keeps what was written first: results are
 * written by whoever comes first, and stores that only speak like S3 may not know that condition.
 */
async function checkBlobs({ blobs }: CoreDeps): Promise<void> {
  // Listed, because a bucket that is not there has no blob of any name either.
  await blobs.list(`${tenantKey(canaryOwner)}/`, { limit: 1 });
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

/** The first process to use a master key leaves a canary for it; every later one must be able to open it. */
async function openCanaries({ blobs, sealer }: CoreDeps): Promise<void> {
  const own = tenantKey(canaryOwner, sealer.keyId);
  if ((await blobs.head(own)) === undefined) {
    const wrappedKey = await sealer.newTenantKey(canaryOwner);
    const sealed = await sealer.seal(canaryOwner, wrappedKey, ["canary"], "alive");
    const body = Buffer.from(JSON.stringify({ wrappedKey, sealed }), "utf8");
    await blobs.put(own, body, { mediaType: "application/json", ifAbsent: true });
  }
  for (const { key } of await blobs.list(`${tenantKey(canaryOwner)}/`)) {
    const blob = await blobs.get(key);
    if (blob === undefined) continue;
    const { wrappedKey, sealed } = canarySchema.parse(
      parseJson(Buffer.from(await readAll(blob.body)).toString("utf8")),
    );
    await sealer.open(canaryOwner, wrappedKey, ["canary"], sealed);
  }
}
