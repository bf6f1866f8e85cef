/**
 * Applies a document: everything is rehearsed first, then written in order of dependency, and what goes is removed last.
 * Each write is a transaction of its own, so what was written when it stops stays, and applying the same document again
 * does the rest (decision 0052).
 */
import { admitAgain } from "../calls/admit.ts";
import type { Presented } from "../callers/authenticate.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { JsonObject } from "../json.ts";
import { contextOfNow } from "./document.ts";
import type { Kinds, Work } from "./kind.ts";
import { goingOf, onlyOne, planConfiguration, problemsAt, type Asked, type Plan, type Step } from "./plan.ts";

/** Milliseconds that nobody else applies after a sign of life of whoever does; longer than one write takes. */
const holdMs = 60_000;
/** Milliseconds after which the next write gives one, and is preceded by a look at whether its sender may still write. */
const signMs = 1_000;
/** Milliseconds after which it stops by itself: a request to a function is cut after 60 s. */
const workMs = 40_000;

export interface Applied {
  readonly plan: Plan;
  readonly done: readonly Step[];
  /** There was no time for these; applying the document again does them. */
  readonly left: readonly Step[];
}

/**
 * @param options `plan`: refused unless it is the plan of this moment
 * @throws GatewayError `conflict` where another is applied or the plan is another; whatever is wrong with the document,
 * with `problems`; what a write met with, or that the sender counts no more, with `applied` and `not_applied`
 */
export async function applyConfiguration(
  kinds: Kinds,
  core: CoreDeps,
  given: CallContext,
  { plan: expected, presented, ...asked }: Asked & { readonly plan: string | undefined; readonly presented: Presented },
): Promise<Applied> {
  const applier = newId("request");
  const { tenant } = given;
  const hold = async (forMs: number): Promise<boolean> => core.repos.tenants.holdApply(tenant, applier, forMs);
  if (!(await hold(holdMs))) throw otherApplies();
  try {
    let heldAt = core.clock.now();
    const until = heldAt + workMs;
    const plan = await planConfiguration(kinds, core, given, asked);
    if (expected !== undefined && expected !== plan.hash) throw otherPlan();
    refuseProblems(plan);
    const steps = inOrderOfWork(plan.steps);
    const done: Step[] = [];
    const ids = new Map<string, string>();
    const goes = goingOf(steps, ["removed"]);
    let context = await contextOfNow(core, given);
    let last: string | undefined;
    for (const [at, step] of steps.entries()) {
      if (core.clock.now() > until) return { plan, done, left: steps.slice(at) };
      try {
        if (core.clock.now() - heldAt > signMs) {
          if (!(await hold(holdMs))) throw otherApplies();
          await admitAgain(core, presented, { scope: "manage" });
          heldAt = core.clock.now();
        }
        // What is written of one kind needs nothing of it; what is removed may have been named by what was written.
        const part = `${step.kind} ${step.action === "removed"}`;
        if (last !== part) context = await contextOfNow(core, given);
        last = part;
        const idOf: Work["idOf"] = (kind, name) =>
          ids.get(`${kind}/${name}`) ??
          onlyOne(
            plan.state[kind].filter((each) => each.name === name),
            kind,
            name,
          ).id;
        const id = await carryOut(kinds, { core, context, idOf, goes }, step);
        if (id !== undefined) ids.set(`${step.kind}/${step.name}`, id);
        done.push(step);
      } catch (thrown) {
        throw stopped(kinds, toGatewayError(thrown), { done, left: steps.slice(at) });
      }
    }
    return { plan, done, left: [] };
  } finally {
    // Else it ends by itself.
    await hold(0).catch(() => undefined);
  }
}

async function carryOut(kinds: Kinds, work: Work, { kind, action, change, live }: Step): Promise<string | undefined> {
  if (change !== undefined) return kinds[kind].write(work, change);
  if (action === "removed" && live !== undefined) await kinds[kind].remove?.(work, live);
  return undefined;
}

function inOrderOfWork(steps: readonly Step[]): readonly Step[] {
  const written = steps.filter(({ change }) => change !== undefined);
  return [...written, ...steps.filter(({ action }) => action === "removed").toReversed()];
}

function otherApplies(): GatewayError {
  const message = "Another document of this tenant's configuration is being applied; try again when that has ended.";
  return new GatewayError("conflict", message, { retryAfterMs: 5_000 });
}

function otherPlan(): GatewayError {
  const message =
    "The configuration, or the document, is not what 'plan' was made of; look at what POST /v1/configuration/plan says now.";
  return new GatewayError("conflict", message, { param: "plan" });
}

function refuseProblems({ problems }: Plan): void {
  const [first] = problems;
  if (first === undefined) return;
  const more = problems.length > 1 ? ` There are ${problems.length - 1} more problems.` : "";
  const param = `configuration.${first.path}`;
  throw new GatewayError(first.code, `In '${first.path}': ${first.message}${more} Nothing was changed.`, {
    param,
    extra: { problems: problems.map((problem) => ({ ...problem })) },
  });
}

function stopped(
  kinds: Kinds,
  error: GatewayError,
  { done, left }: { readonly done: readonly Step[]; readonly left: readonly Step[] },
): GatewayError {
  const [at] = left;
  const [problem] = at === undefined ? [] : problemsAt(kinds[at.kind], at.path, error);
  const place = problem?.path ?? "configuration";
  const message = `In '${place}': ${error.message} What is in 'applied' is done and stays; apply the document again for the rest.`;
  return new GatewayError(error.code, message, {
    ...error.details,
    param: `configuration.${place}`,
    extra: { ...error.details.extra, applied: done.map(toTold), not_applied: left.map(toTold) },
    cause: error,
  });
}

function toTold({ kind, name, action }: Step): JsonObject {
  return { kind, name, action };
}
