/** Homes as those of test/support: the built functions under the runtime client, with a database server. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { migrateDatabases } from "../../functions/compose.ts";
import { readEnvironment } from "../../functions/env.ts";
import type { SqsServer } from "../support/aws/sqs-server.ts";
import { startBalancer } from "../support/balancer.ts";
import { startDatabaseProxy } from "../support/database-proxy.ts";
import { createDriver } from "../support/gateway-client.ts";
import { startServicesOfAws, type RunningHome, type Services } from "../support/homes.ts";
import { queuesOf, startDeployment } from "./deployment.ts";
import type { Deployment, DeploymentOptions } from "./deployment.ts";
import { unpackPreviousRelease } from "./previous-release/previous-release.ts";

const databaseLatencyMs = 20;

/** What deployments share, and how each of them is started. */
export interface Ground {
  readonly services: Services;
  /** @param moreEnv settings beside those that all of them have */
  start(options?: Partial<DeploymentOptions>, moreEnv?: Readonly<Record<string, string>>): Promise<Deployment>;
  close(): Promise<void>;
}

/** With this release's schema in a database 20 ms away, S3 for blobs, SQS for queues, KMS for the master key. */
export async function openGroundOfAws(): Promise<Ground & { readonly sqs: SqsServer }> {
  const services = await startServicesOfAws();
  await migrateDatabases(readEnvironment(services.env), { dataDir: services.directory });
  const queues = queuesOf(services.sqs);
  const proxy = await startDatabaseProxy({ target: services.database.url });
  proxy.latencyMs = databaseLatencyMs;
  // What tools may reach is none of this machine's addresses unless it is said.
  const env = { ...services.env, DATABASE_URL: proxy.url, TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8" };
  return {
    services,
    sqs: services.sqs,
    start: (options, moreEnv = {}) =>
      startDeployment({ env: { ...env, ...moreEnv }, queues, visibilityMs: 10_000, tickEveryMs: 2_000, ...options }),
    async close() {
      await queues.close();
      await proxy.close();
      await services.close();
    },
  };
}

interface Standing {
  readonly url: string;
  readonly deployments: readonly Deployment[];
  /** Of what stands before and beside the deployments. */
  close(): Promise<void>;
}

function toHome(ground: Ground, { url, deployments, close }: Standing): RunningHome {
  const { services } = ground;
  const stop = async (): Promise<void> => void (await Promise.all(deployments.map((one) => one.close())));
  return {
    ...createDriver(url, services.adminKey),
    directories: [services.directory],
    ownSecrets: services.secrets,
    output: () => deployments.map((one) => one.output()).join("\n"),
    // The event sources see to it.
    deliver: () => Promise.resolve(),
    unload: () => services.unload(),
    stop,
    async close() {
      await close();
      await stop();
      await ground.close();
    },
  };
}

/** Two environments of each function take requests in turn; each queued message comes twice. */
export async function startFunctionsHome(): Promise<RunningHome> {
  const ground = await openGroundOfAws();
  const deployment = await ground.start({ spreads: true, duplicates: true });
  return toHome(ground, { url: deployment.url, deployments: [deployment], close: () => Promise.resolve() });
}

/** What the release before can read: a key with a scope that is newer is none to it. */
export const scopesOfPreviousRelease = [
  "chat",
  "tools",
  "runtime_config",
  "calls",
  "approve",
  "manage",
  "node",
  "consume",
  "modules",
] as const;

/** The release before this one, on a ground with this release's schema. */
export async function startPreviousRelease(
  ground: Ground,
  options: Partial<DeploymentOptions> = {},
): Promise<Deployment> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-previous-"));
  const { apiTransferMode } = await unpackPreviousRelease(directory);
  const deployment = await ground.start({ ...options, taskRoot: directory, apiTransferMode });
  return {
    ...deployment,
    async close() {
      await deployment.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/**
 * This release and the one before it, on this release's schema; requests go to the one and the other in turn,
 * and both take from the same queues.
 */
export async function startTwoReleasesHome(): Promise<RunningHome> {
  const [ground, balancer] = await Promise.all([openGroundOfAws(), startBalancer()]);
  const publicUrl = balancer.url;
  const deployments = [await startPreviousRelease(ground, { publicUrl }), await ground.start({ publicUrl })];
  balancer.targets = deployments.map(({ url }) => url);
  const home = toHome(ground, { url: publicUrl, deployments, close: () => balancer.close() });
  // What this release has added to answers, those of the one before do not have.
  const driver = createDriver(publicUrl, ground.services.adminKey, {
    asDeclared: false,
    scopes: scopesOfPreviousRelease,
  });
  return { ...home, ...driver };
}
