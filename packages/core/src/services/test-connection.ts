/** Reaches a service's back end without a side effect, and says what was found (CFG-1). */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { probeTimeoutMs, toProbing } from "./list-tools.ts";
import { requireService, runtimeOf } from "./register.ts";

export interface TestResult {
  readonly ok: boolean;
  readonly detail: string;
  readonly durationMs: number;
  readonly error: GatewayError | undefined;
}

/** @throws GatewayError `not_found`; what the back end or the configuration has against it is the result */
export async function testService(
  deps: Pick<CoreDeps, "adapters" | "repos" | "clock">,
  context: CallContext,
  id: string,
): Promise<TestResult> {
  const service = await requireService(deps, context.tenant, id);
  const runtime = runtimeOf(deps.adapters, service.scheme);
  const started = performance.now();
  const took = (): number => Math.round(performance.now() - started);
  try {
    const { detail } = await giveUpAfter(runtime.probe(service, toProbing(context)));
    return { ok: true, detail: context.redactor.redact(detail), durationMs: took(), error: undefined };
  } catch (thrown) {
    const error = toGatewayError(thrown);
    return { ok: false, detail: context.redactor.redact(error.message), durationMs: took(), error };
  }
}

async function giveUpAfter<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(tooSlow()), probeTimeoutMs + 500);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
    work.catch(() => undefined);
  }
}

function tooSlow(): GatewayError {
  return new GatewayError("tool_timeout", `The service did not answer within ${probeTimeoutMs} ms.`);
}
