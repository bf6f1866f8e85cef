/**
 * One call of a service with several instances: picks one, and goes on to another where nothing of the call
 * has left. Repeating what may have happened is the dispatcher's affair.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { Clock } from "../ports/clock.ts";
import { verdictOf } from "../services/breaker.ts";
import type { OpenService } from "../services/scheme.ts";
import { deliveryOf, withDelivery } from "../errors/delivery.ts";
import type { InvocationContext } from "../tools/tool-call.ts";
import { attemptTimedOut } from "../tools/execute-call.ts";
import { formatToolUri } from "../tools/uri.ts";
import { Balancer } from "./balancer.ts";
import type { SvcConfig } from "./config.ts";
import { registryTitles } from "./discovery/fields.ts";
import { authorityOf, type Instance } from "./instance.ts";

/** Instances that one attempt turns to. */
const mostTries = 3;
/** Services of which something is remembered. */
const mostServices = 2_000;
const withoutBreaker = { failures: 5, open_ms: 30_000 };

export type InstancesOf = (service: OpenService<SvcConfig>, context: InvocationContext) => Promise<readonly Instance[]>;

export class Spread {
  readonly #balancers = new Map<string, Balancer>();
  readonly #clock: Pick<Clock, "now">;
  readonly #instancesOf: InstancesOf;

  constructor(clock: Pick<Clock, "now">, instancesOf: InstancesOf) {
    this.#clock = clock;
    this.#instancesOf = instancesOf;
  }

  /** @throws GatewayError what the last instance tried says; `tool_unreachable`, not sent, where there is none */
  async run<Result>(
    service: OpenService<SvcConfig>,
    context: InvocationContext,
    send: (instance: Instance) => Promise<Result>,
  ): Promise<Result> {
    const balancer = this.#balancerOf(service, context);
    balancer.update(await this.#instancesOf(service, context));
    const tried = new Set<string>();
    let failure: unknown = noInstance(service);
    while (tried.size < mostTries) {
      const picked = balancer.pick(tried);
      if (picked === undefined) break;
      tried.add(authorityOf(picked.instance));
      try {
        const result = await send(picked.instance);
        picked.end("well");
        return result;
      } catch (error) {
        picked.end(verdictOf(error, context.signal.reason === attemptTimedOut));
        failure = error;
        if (context.signal.aborted || !mayTryAnother(error)) break;
      }
    }
    throw failure;
  }

  #balancerOf({ record, config }: OpenService<SvcConfig>, { tenant }: InvocationContext): Balancer {
    const key = `${tenant} ${record.id} ${record.version}`;
    const known = this.#balancers.get(key);
    if (known !== undefined) {
      this.#balancers.delete(key);
      this.#balancers.set(key, known);
      return known;
    }
    const { failures, open_ms: openMs } = config.breaker ?? withoutBreaker;
    const made = new Balancer({ balance: config.balance, failures, openMs }, this.#clock);
    this.#balancers.set(key, made);
    const oldest = this.#balancers.keys().next().value;
    if (this.#balancers.size > mostServices && oldest !== undefined) this.#balancers.delete(oldest);
    return made;
  }
}

/** Nothing has left, and elsewhere it may. */
export function mayTryAnother(error: unknown): boolean {
  return error instanceof GatewayError && error.code === "tool_unreachable" && deliveryOf(error) === "not_sent";
}

function noInstance({ record, config: { discovery } }: OpenService<SvcConfig>): GatewayError {
  const name = formatToolUri(record.scheme, record.serviceId);
  const none = `'${name}' has no instance at the moment`;
  if (discovery === undefined) return withDelivery(new GatewayError("tool_unreachable", `${none}.`), "not_sent");
  const { type, service } = discovery;
  // Consul does not tell those who have no token that something was left out.
  const hint = type === "consul" && discovery.token === undefined ? ", or none that may be read without a token" : "";
  const message = `${none}: ${registryTitles[type]} knows none of '${service}' that is well${hint}; see 'config.discovery'.`;
  return withDelivery(new GatewayError("tool_unreachable", message, { param: "config.discovery" }), "not_sent");
}
