/** Reaches a service's back end without a side effect, and says what was found (CFG-1). */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError, type GatewayError } from "../errors/gateway-error.ts";
import { probing } from "./list-tools.ts";
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
    const { detail } = await probing(context, { runtime, service }, (probe) => runtime.probe(service, probe));
    return { ok: true, detail: context.redactor.redact(detail), durationMs: took(), error: undefined };
  } catch (thrown) {
    const error = toGatewayError(thrown);
    return { ok: false, detail: context.redactor.redact(error.message), durationMs: took(), error };
  }
}
