/**
 * The homes of a gateway, each as a user would have it: one process with nothing but a directory; two
 * containers behind a balancer, with a database server and blobs between them, or with services of AWS;
 * Lambda functions.
 */
import { spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import * as z from "zod";
import { readEnvironment } from "../../functions/env.ts";
import { startServer } from "../../functions/local.ts";
import { newSigner } from "./aws/aws-server.ts";
import { startKmsServer } from "./aws/kms-server.ts";
import { startS3Server } from "./aws/s3-server.ts";
import { startSqsServer, type SqsServer } from "./aws/sqs-server.ts";
import { startBalancer } from "./balancer.ts";
import { createDriver, type GatewayDriver } from "./gateway-client.ts";
import { startGatewayProcess } from "./gateway.ts";
import { startHranaServer, type HranaServer } from "./hrana-server.ts";

export interface RunningHome extends GatewayDriver {
  /** Everything that is kept: database files, blobs, keys. */
  readonly directories: readonly string[];
  /** What every process was given or made to keep secrets with; none of it belongs into rows, blobs and logs. */
  readonly ownSecrets: readonly string[];
  /** Everything that its processes wrote to standard output and standard error. */
  output(): string;
  /** Of the instances that hold sockets, each. */
  readonly socketUrls?: readonly string[];
  /** Brings a queued call to a worker, where nobody polls for it. @throws Error where the batch's outcome is wrong */
  deliver(tenant: string, callId: string): Promise<void>;
  /** Lays what is kept elsewhere into its directories, to be looked through. */
  unload?(): Promise<void>;
  /** Ends the processes; what is kept stays. */
  stop(): Promise<void>;
  /** Ends and removes everything. */
  close(): Promise<void>;
}

export const homes = {
  "one process on a directory": startOneProcess,
  "two processes on a database server": async () => startTwoProcesses(await startServices()),
  "two containers on S3, SQS and KMS": async () => startTwoProcesses(await startServicesOfAws()),
  "Lambda functions": startFunctions,
} as const satisfies Record<string, () => Promise<RunningHome>>;

const logLevel = { TOOLYARD_LOG_LEVEL: "debug" };

async function startOneProcess(): Promise<RunningHome> {
  const gateway = await startGatewayProcess({ env: logLevel });
  return {
    ...gateway,
    directories: [gateway.dataDir],
    socketUrls: [toSocketUrl(gateway.url)],
    ownSecrets: [gateway.adminKey],
    deliver: () => Promise.resolve(),
    stop: async () => void (await gateway.stop()),
  };
}

function toSocketUrl(url: string): string {
  return url.replace(/^http/, "ws");
}

/** A database server, a directory for blobs, and the settings of processes that share them. */
export interface Services {
  readonly directory: string;
  readonly database: HranaServer;
  readonly adminKey: string;
  readonly secrets: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  unload(): Promise<void>;
  close(): Promise<void>;
}

export async function startServices(): Promise<Services> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-services-"));
  const token = randomBytes(24).toString("base64url");
  const adminKey = `admin_${randomBytes(24).toString("base64url")}`;
  const masterKey = randomBytes(32).toString("base64url");
  await mkdir(join(directory, "blobs"));
  const database = await startHranaServer({ file: join(directory, "server.db"), authToken: token });
  return {
    directory,
    database,
    adminKey,
    secrets: [token, adminKey, masterKey],
    env: {
      ...logLevel,
      DATABASE_URL: database.url,
      DATABASE_AUTH_TOKEN: token,
      BLOBS_URL: pathToFileURL(join(directory, "blobs")).href,
      TOOLYARD_ADMIN_KEY: adminKey,
      TOOLYARD_MASTER_KEY: masterKey,
    },
    unload: () => Promise.resolve(),
    async close() {
      await database.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

export interface ServicesOfAws extends Services {
  readonly sqs: SqsServer;
}

/** The same with a bucket, queues and a key of AWS, 20 ms away. */
export async function startServicesOfAws(): Promise<ServicesOfAws> {
  const services = await startServices();
  const signer = newSigner();
  const [s3, sqs, kms] = await Promise.all([
    startS3Server("toolyard", { signer }),
    startSqsServer(signer),
    startKmsServer(signer),
  ]);
  const servers = [s3, sqs, kms];
  for (const server of servers) server.latencyMs = 20;
  return {
    ...services,
    sqs,
    secrets: [...services.secrets, signer.secretAccessKey],
    env: {
      ...services.env,
      BLOBS_URL: `s3://${s3.bucket}/gateway`,
      QUEUE_URL: sqs.urls.short,
      QUEUE_LONG_URL: sqs.urls.long,
      TOOLYARD_MASTER_KEY: `kms:${kms.addKey().arn}`,
      AWS_ACCESS_KEY_ID: signer.accessKeyId,
      AWS_SECRET_ACCESS_KEY: signer.secretAccessKey,
      AWS_REGION: s3.region,
      AWS_ENDPOINT_URL_S3: s3.url,
      AWS_ENDPOINT_URL_KMS: kms.url,
      AWS_EC2_METADATA_DISABLED: "true",
    },
    async unload() {
      const bodies = [...s3.objects.values()].map(({ body }) => body);
      const messages = ["short", "long", "short-dead", "long-dead"].flatMap((queue) => sqs.bodies(queue));
      if (bodies.length === 0) throw new Error("nothing was put into the bucket");
      if (sqs.deleted() === 0) throw new Error("no message was worked off");
      const all = [...bodies, Buffer.from(messages.join("\n"))];
      await Promise.all(all.map((body, at) => writeFile(join(services.directory, `unloaded-${at}`), body)));
    },
    async close() {
      await Promise.all(servers.map((server) => server.close()));
      await services.close();
    },
  };
}

async function startTwoProcesses(services: Services): Promise<RunningHome> {
  const balancer = await startBalancer();
  const env = { ...services.env, TOOLYARD_PUBLIC_URL: balancer.url };
  // Both at once: they also meet at the migration.
  const processes = await Promise.all([startGatewayProcess({ env }), startGatewayProcess({ env })]);
  balancer.targets = processes.map(({ url }) => url);
  return {
    ...createDriver(balancer.url, services.adminKey),
    directories: [services.directory, ...processes.map(({ dataDir }) => dataDir)],
    socketUrls: processes.map(({ url }) => toSocketUrl(url)),
    ownSecrets: services.secrets,
    output: () => processes.map(({ output }) => output()).join("\n"),
    deliver: () => Promise.resolve(),
    unload: () => services.unload(),
    async stop() {
      await Promise.all(processes.map((one) => one.stop()));
      const [first = 0, second = 0] = processes.map(({ url }) => balancer.counts.get(url));
      if (Math.abs(first - second) > 1) throw new Error(`requests were not shared: ${first} and ${second}`);
    },
    async close() {
      await balancer.close();
      await Promise.all(processes.map((one) => one.close()));
      await services.close();
    },
  };
}

const addressesSchema = z.object({ api: z.string(), events: z.string() });
const batchResultSchema = z.object({ batchItemFailures: z.array(z.object({ itemIdentifier: z.string() })) });
const root = new URL("../../", import.meta.url);

async function startFunctions(): Promise<RunningHome> {
  const services = await startServices();
  await deploy(services);
  const child = spawn(process.execPath, ["test/support/lambda-host.ts"], {
    cwd: root,
    env: {
      ...services.env,
      // What tools may reach is none of this machine's addresses unless it is said.
      TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8",
      AWS_LAMBDA_FUNCTION_NAME: "toolyard",
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const ended = new Promise((done) => child.once("exit", done));
  let output = "";
  const addresses = await new Promise<z.infer<typeof addressesSchema>>((found, fail) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (part: Buffer) => {
        output += part.toString("utf8");
        const line = /^\{"api".*$/m.exec(output)?.[0];
        if (line !== undefined) found(addressesSchema.parse(JSON.parse(line)));
      });
    }
    void ended.then(() => fail(new Error(`the functions did not start:\n${output}`)));
  });
  const end = async (): Promise<void> => {
    child.kill("SIGKILL");
    await ended;
  };
  return {
    ...createDriver(addresses.api, services.adminKey),
    directories: [services.directory],
    ownSecrets: services.secrets,
    output: () => output,
    deliver: (tenant, callId) => deliverTwice(addresses.events, { tenant, callId }),
    stop: end,
    async close() {
      await end();
      await services.close();
    },
  };
}

/** What a deployment does before traffic: functions never change the schema. */
export async function deploy({ env, directory }: Services): Promise<void> {
  const settings = readEnvironment({ ...env, PORT: "0", TOOLYARD_DATA_DIR: join(directory, "deploy") });
  const log = { log: () => undefined, flush: () => Promise.resolve() };
  await (await startServer(settings, { log })).stop();
}

/** As SQS does at times, together with a message that is none of ours and the only one to come again. */
async function deliverTwice(
  events: string,
  message: { readonly tenant: string; readonly callId: string },
): Promise<void> {
  const body = JSON.stringify(message);
  const records = [
    { messageId: "first", body },
    { messageId: "again", body },
    { messageId: "alien", body: "{}" },
  ].map((record) => ({ receiptHandle: randomUUID(), eventSource: "aws:sqs", ...record }));
  const answer = await fetch(`${events}/worker`, { method: "POST", body: JSON.stringify({ Records: records }) });
  const { batchItemFailures } = batchResultSchema.parse(await answer.json());
  const failed = batchItemFailures.map(({ itemIdentifier }) => itemIdentifier);
  if (failed.join() !== "alien") throw new Error(`failed of the batch: '${failed.join()}' instead of 'alien'`);
  // The scheduler comes by as well; whatever it sends again finds the call done.
  const ticked = await fetch(`${events}/tick`, { method: "POST" });
  if (!ticked.ok) throw new Error(`the tick answered ${ticked.status}: ${await ticked.text()}`);
}
