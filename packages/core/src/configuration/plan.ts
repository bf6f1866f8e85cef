/**
 * What a document would change, and what is wrong with it: all of it, and nothing is changed (decision 0052). Each change
 * is rehearsed with the configuration as the changes before it will have left it.
 */
import { createHash } from "node:crypto";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import type { ErrorCode } from "../errors/catalog.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { canonicalJson, isJsonObject, type JsonValue } from "../json.ts";
import { Pace } from "../pace.ts";
import { changedIn, fieldChanges, isSame, pairUp, type FieldChange } from "./compare.ts";
import {
  contextOfNow,
  inOrder,
  neededIn,
  readState,
  storedIn,
  toDocument,
  type Named,
  type Needed,
  type State,
} from "./document.ts";
import type { Change, Kind, Kinds, Work } from "./kind.ts";
import { kindNames, type KindName } from "./names.ts";
import { plainSecretsIn, type Warning } from "./plain-secrets.ts";
import { firstEffect, rehearsing } from "./rehearse.ts";

export interface Step {
  readonly kind: KindName;
  readonly name: string;
  /** Of the document: `agents[2]`. */
  readonly path: string;
  /** `kept`: it is there, and the document does not name it. */
  readonly action: "added" | "changed" | "unchanged" | "removed" | "kept" | "invalid";
  readonly fields: readonly FieldChange[];
  /** Of what is added or changed. */
  readonly change: Change | undefined;
  readonly live: Named | undefined;
}

export interface Problem {
  readonly code: ErrorCode;
  /** `agents[2].limits.rounds` */
  readonly path: string;
  readonly message: string;
}

export interface Plan {
  /** Of the document, and of what there is. */
  readonly hash: string;
  readonly steps: readonly Step[];
  readonly problems: readonly Problem[];
  /** What stands in the document and keeps it from nothing. */
  readonly warnings: readonly Warning[];
  readonly missing: readonly Needed[];
  readonly state: State;
}

export interface Asked {
  /** By kind, as it came. */
  readonly document: { readonly [Name in KindName]?: unknown };
  /** What the tenant has of these kinds beside what the document names goes. */
  readonly removeMissing: boolean;
}

interface Wanted {
  readonly name: string;
  readonly item: JsonValue;
  readonly path: string;
  readonly isValid: boolean;
}

type WantedState = { [Name in KindName]?: readonly Wanted[] };

export async function planConfiguration(kinds: Kinds, core: CoreDeps, given: CallContext, asked: Asked): Promise<Plan> {
  const context = await contextOfNow(core, given);
  const rehearsal = new Rehearsal(kinds, rehearsing(core), context);
  const state = await readState(kinds, rehearsal.work);
  const wanted: WantedState = {};
  const steps: Step[] = [];
  for (const name of kindNames) {
    const items = asked.document[name];
    if (items === undefined) continue;
    const read = await rehearsal.readItems(name, { items, live: state[name], removeMissing: asked.removeMissing });
    wanted[name] = read;
    const own = stepsOf(name, { wanted: read, live: state[name], removeMissing: asked.removeMissing });
    await rehearsal.requireRoom(name, own);
    for (const step of own)
      steps.push(await rehearsal.write(step, { state, wanted, removeMissing: asked.removeMissing }));
  }
  await rehearsal.remove(steps);
  const items = Object.entries(wanted).map(([name, all]) => [name, all.map(({ item }) => item)]);
  const seen = { items, live: toDocument(kinds, state), removeMissing: asked.removeMissing };
  const hash = createHash("sha256").update(canonicalJson(seen)).digest("hex");
  const stored = storedIn(context.config);
  const held = new Set(kindNames.flatMap((name) => kinds[name].holds?.(context.config) ?? []));
  const missing = neededIn(kinds, wanted).filter(({ name }) => !stored.has(name) && !held.has(name));
  const warnings = Object.values(wanted).flatMap((all) => all.flatMap(({ path, item }) => plainSecretsIn(path, item)));
  return { hash, steps, problems: rehearsal.problems, warnings, missing, state };
}

interface Sides {
  readonly wanted: readonly Wanted[];
  readonly live: readonly Named[];
  readonly removeMissing: boolean;
}

function stepsOf(kind: KindName, { wanted, live, removeMissing }: Sides): readonly Step[] {
  return pairUp(wanted, live).flatMap(({ one, other }): readonly Step[] => {
    if (one !== undefined) return [stepOf(kind, one, other)];
    if (other === undefined) return [];
    const action = removeMissing ? "removed" : "kept";
    return [{ kind, name: other.name, path: kind, action, fields: [], change: undefined, live: other }];
  });
}

function stepOf(kind: KindName, { name, item, path, isValid }: Wanted, live: Named | undefined): Step {
  const step = { kind, name, path, fields: [], change: undefined, live };
  if (!isValid) return { ...step, action: "invalid" };
  if (live !== undefined && isSame(live.item, item)) return { ...step, action: "unchanged" };
  const change = { item, before: live, changed: changedIn(live?.item ?? null, item) };
  if (live === undefined) return { ...step, action: "added", change };
  return { ...step, action: "changed", change, fields: fieldChanges(live.item, item) };
}

/** Two of a name are told apart by nobody. @throws GatewayError `invalid_request` */
export function onlyOne<Item>(found: readonly Item[], kind: KindName, name: string): Item {
  const [first, second] = found;
  if (first !== undefined && second === undefined) return first;
  const what = first === undefined ? "there is none" : "there are several";
  throw new GatewayError("invalid_request", `'${name}' must name one of '${kind}', and ${what} of this name.`);
}

/** Whose references stand in the configuration, and so in that of a rehearsal as they will be. */
const referring: ReadonlySet<KindName> = new Set<KindName>(["settings", "agents"]);

/** In which everything is done up to its first effect, one after the other. */
class Rehearsal {
  readonly problems: Problem[] = [];
  readonly #kinds: Kinds;
  readonly #core: CoreDeps;
  readonly #pace = new Pace();
  #context: CallContext;
  #idOf: Work["idOf"] = () => undefined;
  #goes: Work["goes"] = () => false;

  constructor(kinds: Kinds, core: CoreDeps, context: CallContext) {
    this.#kinds = kinds;
    this.#core = core;
    this.#context = context;
  }

  get work(): Work {
    return { core: this.#core, context: this.#context, idOf: this.#idOf, goes: this.#goes };
  }

  /** In the document's order of names; what cannot be read stays what it is called. */
  async readItems(
    name: KindName,
    {
      items,
      live,
      removeMissing,
    }: { readonly items: unknown; readonly live: readonly Named[]; readonly removeMissing: boolean },
  ): Promise<readonly Wanted[]> {
    const kind = this.#kinds[name];
    if (kind.merge !== undefined) {
      const asked = await this.#try(name, name, () => {
        requireText(items as JsonValue);
        return kind.parse(this.work, items);
      });
      const before = live[0]?.item ?? null;
      if (asked === undefined) return [{ name: "", item: before, path: name, isValid: false }];
      return [{ name: "", item: kind.merge(removeMissing ? null : before, asked), path: name, isValid: true }];
    }
    const read: Wanted[] = [];
    const places = new Map<string, string>();
    for (const [at, each] of (items as readonly unknown[]).entries()) {
      const path = `${name}[${at}]`;
      const item = await this.#try(name, path, () => {
        requireText(each as JsonValue);
        return kind.parse(this.work, each);
      });
      if (item === undefined) {
        read.push({ name: nameOf(kind, each) ?? path, item: null, path, isValid: false });
        continue;
      }
      const known = kind.identify(item);
      const before = places.get(known);
      places.set(known, path);
      if (before !== undefined && kind.repeats !== true) {
        this.problems.push({ code: "conflict", path, message: `'${known}' stands in ${before} as well.` });
        read.push({ name: path, item: null, path, isValid: false });
      } else read.push({ name: known, item, path, isValid: true });
    }
    return inOrder(read);
  }

  /** What is removed goes last, so it leaves no room for what is added. */
  async requireRoom(name: KindName, steps: readonly Step[]): Promise<void> {
    const kind = this.#kinds[name];
    const added = steps.filter(({ action }) => action === "added").length;
    if (kind.room === undefined || added === 0) return;
    const { most, there, called } = await kind.room(this.work);
    if (there + added <= most) return;
    const message = `A tenant has at most ${most} ${called}; there are ${there}, and ${added} would be added.`;
    this.problems.push({ code: "conflict", path: name, message });
  }

  async write(
    step: Step,
    {
      state,
      wanted,
      removeMissing,
    }: { readonly state: State; readonly wanted: WantedState; readonly removeMissing: boolean },
  ): Promise<Step> {
    const { change } = step;
    if (change === undefined) return step;
    const kind = this.#kinds[step.kind];
    this.#idOf = (of, name) => {
      const isCalled = (each: { readonly name: string }): boolean => each.name === name;
      const [live, brought] = [state[of].filter(isCalled), wanted[of]?.filter(isCalled)];
      if (brought?.length === 1 && live.length <= 1) return live[0]?.id;
      return onlyOne(brought?.length === 0 && removeMissing ? [] : live, of, name).id;
    };
    const effect = await this.#try(step.kind, step.path, async () => ({
      first: await firstEffect(() => kind.write(this.work, change)),
    }));
    if (effect === undefined) return { ...step, action: "invalid", fields: [] };
    if (kind.foresee !== undefined) {
      this.#context = {
        ...this.#context,
        config: await kind.foresee(this.#context.config, change, { effect: effect.first, core: this.#core }),
      };
    }
    return step;
  }

  /** In the order in which it is done; what others than these are changed to is seen then. */
  async remove(steps: readonly Step[]): Promise<void> {
    const anew = steps.filter(({ kind, action }) => action === "changed" && !referring.has(kind));
    const isGone = goingOf(steps, ["removed"]);
    this.#goes = (reference) =>
      isGone(reference) ||
      anew.some((step) => goingOf([step], ["changed"])(reference) && !this.#names(step, reference.value));
    for (const { kind: name, action, live, path } of steps.toReversed()) {
      const kind = this.#kinds[name];
      if (action !== "removed" || live === undefined || kind.remove === undefined) continue;
      const remove = kind.remove.bind(kind);
      await this.#try(name, path, () => firstEffect(() => remove(this.work, live)));
      if (kind.without === undefined) continue;
      this.#context = { ...this.#context, config: kind.without(this.#context.config, live) };
    }
  }

  #names({ kind, change }: Step, value: string): boolean {
    const item = change?.item ?? null;
    return this.#kinds[kind].names?.(item, value) ?? holdsText(item, value);
  }

  async #try<T>(name: KindName, path: string, work: () => Promise<T> | T): Promise<T | undefined> {
    await this.#pace.turn();
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof GatewayError) || error.code === "database_unavailable") throw error;
      this.problems.push(...problemsAt(this.#kinds[name], path, error));
      return undefined;
    }
  }
}

/** What the database would write otherwise would be other than the document for ever. @throws GatewayError `invalid_request` */
function requireText(value: JsonValue, path: readonly string[] = []): void {
  if (typeof value === "string" && !value.isWellFormed()) {
    const message = "This is no Unicode text: half of a surrogate pair stands in it.";
    throw new GatewayError("invalid_request", message, { param: path.join(".") });
  }
  if (Array.isArray(value)) for (const [at, each] of value.entries()) requireText(each, [...path, String(at)]);
  else if (isJsonObject(value)) for (const [key, each] of Object.entries(value)) requireText(each, [...path, key]);
}

function nameOf(kind: Kind, item: unknown): string | undefined {
  if (!isJsonObject(item)) return undefined;
  const name: unknown = kind.identify(item);
  return typeof name === "string" && name !== "" ? name : undefined;
}

function holdsText(item: JsonValue, text: string): boolean {
  if (typeof item !== "object" || item === null) return item === text;
  return Object.values(item).some((each) => holdsText(each, text));
}

const textOf = (value: unknown): string => (typeof value === "string" ? value : "");

/** Each thing that an error tells, at its place in the document. */
export function problemsAt(kind: Kind, path: string, error: GatewayError): readonly Problem[] {
  const { param, extra } = error.details;
  const placed = (place: string | undefined): string => {
    const within = place === undefined || place === "" ? "" : (kind.place?.(place) ?? place);
    return within === "" ? path : `${path}.${within}`;
  };
  const listed = extra?.["problems"];
  const told = Array.isArray(listed) ? listed.filter((each) => isJsonObject(each)) : [];
  if (told.length === 0) return [{ code: error.code, path: placed(param), message: error.message }];
  return told.map((each) => {
    const [place, message] = [textOf(each["param"] ?? each["pointer"]), textOf(each["message"])];
    return { code: error.code, path: placed(place), message: `'${place}' ${message}` };
  });
}

/** References of those that go, or that somebody has written anew. */
export function goingOf(steps: readonly Step[], actions: readonly Step["action"][]): Work["goes"] {
  const touched = steps.filter(({ action }) => actions.includes(action));
  const ids = new Set(touched.map(({ live }) => live?.id));
  const kinds = new Set(touched.map((step) => step.kind));
  return ({ kind, id }) => {
    if (kind === "mcp_toolset") return kinds.has("settings");
    return kind === "tool_price" ? kinds.has("prices") : ids.has(id);
  };
}
