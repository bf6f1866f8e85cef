/**
 * Deployments as instances of the kill suite: several of them share a database 20 ms away, a bucket,
 * queues and a key of AWS. A deployment whose environment dies in the middle of an invocation counts as gone, so that
 * another one has to take over all that it left.
 */
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openDatabase } from "@toolyard/db/client";
import { eventually, pointsReached, type Instance } from "../kill/instance.ts";
import type { Site } from "../kill/lane.ts";
import { createDriver, type GatewayDriver } from "../support/gateway-client.ts";
import type { Order } from "../support/kill-orders.ts";
import type { Deployment } from "./deployment.ts";
import { openGroundOfAws, type Ground } from "./home.ts";
import type { Environment } from "./runtime-api.ts";

const cache = fileURLToPath(new URL("../../node_modules/.cache/", import.meta.url));
/** Made by setup.ts: the functions with other hooks. */
export const killableFunctions = join(cache, "killable-functions");

const freezesWithinMs = 5_000;

export async function openDeployments(): Promise<Site> {
  const ground = await openGroundOfAws();
  const { DATABASE_URL: url = "", DATABASE_AUTH_TOKEN: authToken = "" } = ground.services.env;
  const database = await openDatabase({ url, authToken });
  return {
    database,
    startInstance: () => DeploymentInstance.start(ground),
    forgetMessages: () => Promise.resolve(ground.sqs.purge()),
    async close() {
      await database.close();
      await ground.close();
    },
  };
}

class DeploymentInstance implements Instance {
  readonly driver: GatewayDriver;
  readonly ended: Promise<void>;
  readonly #deployment: Deployment;
  readonly #directory: string;
  readonly #setEnded: () => void;
  #hasEnded = false;

  private constructor(deployment: Deployment, adminKey: string, directory: string) {
    this.#deployment = deployment;
    this.#directory = directory;
    this.driver = createDriver(deployment.url, adminKey);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.ended = promise;
    this.#setEnded = resolve;
  }

  static async start(ground: Ground): Promise<DeploymentInstance> {
    const directory = await mkdtemp(join(tmpdir(), "toolyard-deployment-"));
    const orders = join(directory, "orders");
    await mkdir(orders);
    const started: { instance?: DeploymentInstance } = {};
    const deployment = await ground.start(
      {
        taskRoot: killableFunctions,
        visibilityMs: 120_000,
        tickEveryMs: 500,
        // Whoever waits for its turn stands still, maybe in the middle of a tick, for as long as a case takes.
        timeoutMs: 900_000,
        onEnvironmentEnd: () => started.instance?.kill(),
      },
      {
        TOOLYARD_LOG_LEVEL: "warn",
        NODE_COMPILE_CACHE: join(cache, "killable-compile"),
        KILL_ORDER_FILE: join(orders, "order.json"),
      },
    );
    started.instance = new DeploymentInstance(deployment, ground.services.adminKey, directory);
    return started.instance;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get output(): string {
    return this.#deployment.output();
  }

  get reached(): readonly string[] {
    return pointsReached(this.output);
  }

  async order(order: Order): Promise<void> {
    await writeFile(join(this.#directory, "orders/order.json"), JSON.stringify(order));
  }

  kill(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    for (const trigger of this.#deployment.triggers) trigger.pause();
    // What is under way is answered by the gateway before that goes, too.
    void this.#deployment.kill().then(this.#setEnded);
  }

  async freeze(): Promise<void> {
    for (const trigger of this.#deployment.triggers) trigger.pause();
    const environments = this.#environments();
    // Nobody freezes a function that is still loading: it would find its time for that used up.
    await Promise.all(environments.map(({ ready }) => ready));
    for (const environment of environments) environment.freeze();
    await eventually("Everything to stand still", freezesWithinMs, async () => {
      const frozen = await Promise.all(environments.map(async (one) => one.hasEnded || (await one.isFrozen())));
      return frozen.every(Boolean) || undefined;
    });
  }

  async isFrozen(): Promise<boolean> {
    const busy = this.#environments().filter(({ isBusy }) => isBusy);
    return (await Promise.all(busy.map((environment) => environment.isFrozen()))).some(Boolean);
  }

  thaw(): void {
    // Those without work are the service's to thaw.
    for (const environment of this.#environments()) if (!environment.isFree) environment.thaw();
    for (const trigger of this.#deployment.triggers) trigger.resume();
  }

  async close(): Promise<void> {
    this.#hasEnded = true;
    await this.#deployment.close();
    await rm(this.#directory, { recursive: true, force: true });
    this.#setEnded();
  }

  #environments(): readonly Environment[] {
    return Object.values(this.#deployment.functions).flatMap(({ environments }) => environments);
  }
}
