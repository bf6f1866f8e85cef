/** Homes as those of test/support: the built functions under the runtime client, with a database server. */
import { mkdirSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSqsTaskQueue } from "@toolyard/platform/aws/sqs-task-queue";
import { migrateDatabases } from "../../functions/compose.ts";
import { readEnvironment } from "../../functions/env.ts";
import { newSigner } from "../support/aws/aws-server.ts";
import { startKmsServer } from "../support/aws/kms-server.ts";
import { startS3Server } from "../support/aws/s3-server.ts";
import { startSqsServer } from "../support/aws/sqs-server.ts";
import { startBalancer } from "../support/balancer.ts";
import { startDatabaseProxy } from "../support/database-proxy.ts";
import { createDriver } from "../support/gateway-client.ts";
import { deploy, startServices, type RunningHome, type Services } from "../support/homes.ts";
import { consume, openQueues, startDeployment, type Deployment, type DeploymentOptions } from "./deployment.ts";
import { unpackPreviousRelease } from "./previous-release/previous-release.ts";

const databaseLatencyMs = 20;

/** What deployments share, and how each of them is started. */
interface Ground {
  readonly services: Services;
  start(options?: Partial<DeploymentOptions>): Promise<Deployment>;
  close(): Promise<void>;
}

async function openGround(latencyMs: number): Promise<Ground> {
  const services = await startServices();
  await deploy(services);
  const proxy = await startDatabaseProxy({ target: services.database.url });
  proxy.latencyMs = latencyMs;
  const queues = await openQueues(services.env);
  // What tools may reach is none of this machine's addresses unless it is said.
  const env = { ...services.env, DATABASE_URL: proxy.url, TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8" };
  return {
    services,
    start: (options) => startDeployment({ env, queues, visibilityMs: 10_000, tickEveryMs: 2_000, ...options }),
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
    stop,
    async close() {
      await close();
      await stop();
      await ground.close();
    },
  };
}

/**
 * All services of AWS: S3 for blobs, SQS for queues, KMS for the master key. Two environments of each function
 * take requests in turn; each queued message comes twice.
 */
export async function startFunctionsHome(): Promise<RunningHome> {
  const services = await startServices();
  const signer = newSigner();
  const [s3, sqs, kms] = await Promise.all([
    startS3Server("blobs", { signer }),
    startSqsServer(signer),
    startKmsServer(signer),
  ]);
  const proxy = await startDatabaseProxy({ target: services.database.url });
  proxy.latencyMs = databaseLatencyMs;
  const queue = createSqsTaskQueue({ urls: sqs.urls, client: sqs.client, waitSeconds: 1 });
  const env = {
    ...services.env,
    DATABASE_URL: proxy.url,
    BLOBS_URL: `s3://${s3.bucket}`,
    QUEUE_URL: sqs.urls.short,
    QUEUE_LONG_URL: sqs.urls.long,
    TOOLYARD_MASTER_KEY: `kms:${kms.addKey().id}`,
    TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8",
    AWS_ENDPOINT_URL_S3: s3.url,
    AWS_ENDPOINT_URL_SQS: sqs.url,
    AWS_ENDPOINT_URL_KMS: kms.url,
    AWS_ACCESS_KEY_ID: signer.accessKeyId,
    AWS_SECRET_ACCESS_KEY: signer.secretAccessKey,
    AWS_REGION: s3.region,
  };
  await migrateDatabases(readEnvironment(services.env), { dataDir: services.directory });
  const deployment = await startDeployment({
    env,
    queues: consume(queue, () => Promise.resolve()),
    visibilityMs: 10_000,
    tickEveryMs: 2_000,
    spreads: true,
    duplicates: true,
  });
  const kept = join(services.directory, "bucket");
  const ground: Ground = {
    services,
    start: () => Promise.resolve(deployment),
    async close() {
      await Promise.all([proxy.close(), s3.close(), sqs.close(), kms.close()]);
      await services.close();
    },
  };
  const home = toHome(ground, { url: deployment.url, deployments: [deployment], close: () => Promise.resolve() });
  return {
    ...home,
    ownSecrets: [...services.secrets, signer.secretAccessKey],
    /** What lies in the bucket is laid out beside the database whenever somebody looks. */
    get directories() {
      mkdirSync(kept, { recursive: true });
      for (const [key, { body }] of s3.objects) writeFileSync(join(kept, encodeURIComponent(key)), body);
      return home.directories;
    },
  };
}

/** This release and the one before it, on this release's schema; requests go to the one and the other in turn. */
export async function startTwoReleasesHome(): Promise<RunningHome> {
  const [ground, balancer] = await Promise.all([openGround(0), startBalancer()]);
  const directory = await mkdtemp(join(tmpdir(), "toolyard-previous-"));
  const { apiTransferMode } = await unpackPreviousRelease(directory);
  const publicUrl = balancer.url;
  const deployments = [
    await ground.start({ publicUrl, taskRoot: directory, apiTransferMode }),
    await ground.start({ publicUrl }),
  ];
  balancer.targets = deployments.map(({ url }) => url);
  const home = toHome(ground, {
    url: publicUrl,
    deployments,
    async close() {
      await balancer.close();
      await rm(directory, { recursive: true, force: true });
    },
  });
  // What this release has added to answers, those of the one before do not have.
  return { ...home, ...createDriver(publicUrl, ground.services.adminKey, false) };
}
