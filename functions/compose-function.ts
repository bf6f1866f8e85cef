/** The gateway as a Lambda function has it: nothing is made or migrated, nothing private is reachable. */
import type { Log } from "@toolyard/core/ports/log";
import type { RemotePush } from "@toolyard/core/ports/push";
import { createEmbeddedMetrics } from "@toolyard/platform/embedded-metrics";
import { compose, requireKeys } from "./compose.ts";
import { EnvironmentError, readEnvironment } from "./env.ts";
import { functionHooks } from "./function-hooks.ts";
import { createFunctionLog, standardOutput, writeLine } from "./function-log.ts";
import type { AppDeps } from "./http/app-env.ts";
import { tellClients, type Telling } from "./realtime/after-invocation.ts";

/** @throws EnvironmentError naming the settings that a function must be given */
export async function composeFunction(
  telling: Telling,
  { readsAllSchemes = false }: { readonly readsAllSchemes?: boolean } = {},
): Promise<{
  readonly app: AppDeps;
  readonly log: Log;
  /** To connected clients; absent: server processes hold the connections. */
  readonly push?: RemotePush;
  /** Before the function may be frozen. */
  readonly finish: () => Promise<void>;
}> {
  const environment = readEnvironment();
  const log = createFunctionLog(environment.logLevel);
  const { publicUrl } = environment;
  if (publicUrl === undefined)
    throw new EnvironmentError(["TOOLYARD_PUBLIC_URL: must be set where the address is not ours"]);
  const metrics = createEmbeddedMetrics((line) => writeLine(standardOutput, `${line}\n`));
  const composition = await compose(environment, {
    ...requireKeys(environment),
    ...functionHooks,
    log,
    metrics,
    publicUrl,
    dataDir: undefined,
    egressAllow: [],
    migrates: false,
    readsAllSchemes,
    sendsTraces: false,
  });
  const { app, push } = composition;
  return {
    app,
    log,
    ...(push === undefined ? {} : { push }),
    async finish() {
      metrics.flush();
      await tellClients(composition, telling);
      await composition.flushTraces();
    },
  };
}
