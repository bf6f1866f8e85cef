/** Admits a request that is no call of a tool: proven, counted, and narrowed to the tools of its address. */
import { admit, admitAgain } from "../calls/admit.ts";
import { Redactor } from "../secrets/redactor.ts";
import type { AdmittedExchange, Exchange, McpReply } from "./exchange.ts";
import { findToolset, within } from "./toolset.ts";

/** For the answer's headers and the log. */
type Told = Required<Pick<McpReply, "callerId" | "rate">>;

/**
 * @param options `isAgain`: for an answer that goes on, as `admitAgain`
 * @throws GatewayError as `admit`; `not_found` where there is no such toolset
 */
export async function admitExchange(
  exchange: Exchange,
  { isAgain = false }: { readonly isAgain?: boolean } = {},
): Promise<AdmittedExchange & { readonly told: Told }> {
  const { deps, presented, requestId, traceId, span } = exchange;
  const options = { scope: "tools" } as const;
  const { caller, config, result } = isAgain
    ? await admitAgain(deps, presented, options)
    : await admit(deps, { ...presented, limits: { countRequest: true } }, options);
  const tools = findToolset(config, exchange.toolset);
  const context = {
    tenant: presented.tenant,
    caller: within(caller, tools),
    config,
    requestId,
    traceId,
    span,
    redactor: new Redactor(),
  };
  return { ...exchange, context, tools, told: { callerId: caller.id, rate: result.rate } };
}
