/** A home as the homes of test/support: the built functions under the runtime client, a database 20 ms away. */
import { startDatabaseProxy } from "../support/database-proxy.ts";
import { createDriver } from "../support/gateway-client.ts";
import { deploy, startServices, type RunningHome } from "../support/homes.ts";
import { openQueues, startDeployment } from "./deployment.ts";

const databaseLatencyMs = 20;

/** Two environments of each function take requests in turn; each queued message comes twice. */
export async function startFunctionsHome(): Promise<RunningHome> {
  const services = await startServices();
  await deploy(services);
  const proxy = await startDatabaseProxy({ target: services.database.url });
  proxy.latencyMs = databaseLatencyMs;
  const queues = await openQueues(services.env);
  const deployment = await startDeployment({
    // What tools may reach is none of this machine's addresses unless it is said.
    env: { ...services.env, DATABASE_URL: proxy.url, TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8" },
    queues,
    spreads: true,
    duplicates: true,
    visibilityMs: 10_000,
    tickEveryMs: 2_000,
  });
  return {
    ...createDriver(deployment.url, services.adminKey),
    directories: [services.directory],
    ownSecrets: services.secrets,
    output: () => deployment.output(),
    deliver: () => Promise.resolve(),
    stop: () => deployment.close(),
    async close() {
      await deployment.close();
      await queues.close();
      await proxy.close();
      await services.close();
    },
  };
}
