/** The gateway as a Lambda function has it: nothing is made or migrated, nothing private is reachable. */
import type { Log } from "@toolyard/core/ports/log";
import { createEmbeddedMetrics } from "@toolyard/platform/embedded-metrics";
import { compose, requireKeys } from "./compose.ts";
import { EnvironmentError, readEnvironment } from "./env.ts";
import { functionHooks } from "./function-hooks.ts";
import { createFunctionLog } from "./function-log.ts";
import type { AppDeps } from "./http/app-env.ts";

/** @throws EnvironmentError naming the settings that a function must be given */
export async function composeFunction(): Promise<{
  readonly app: AppDeps;
  readonly log: Log;
  /** Before the function may be frozen. */
  readonly flush: () => Promise<void>;
}> {
  const environment = readEnvironment();
  const log = createFunctionLog(environment.logLevel);
  const { publicUrl } = environment;
  if (publicUrl === undefined)
    throw new EnvironmentError(["TOOLYARD_PUBLIC_URL: must be set where the address is not ours"]);
  const metrics = createEmbeddedMetrics((line) => void process.stdout.write(`${line}\n`));
  const composition = await compose(environment, {
    ...requireKeys(environment),
    ...functionHooks,
    log,
    metrics,
    publicUrl,
    dataDir: undefined,
    egressAllow: [],
    migrates: false,
    sendsTraces: false,
  });
  return {
    app: composition.app,
    log,
    flush() {
      metrics.flush();
      return composition.flushTraces();
    },
  };
}
