/**
 * What is wrong with a definition, all at once and each with its JSON pointer: what the schema says, where nodes lead,
 * expressions, tool URIs, schemas (FLOW-1, URI-2). What is found here is not met by a run.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { schemaProblems } from "../errors/schema-problems.ts";
import { isDeeperThan, isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { Pace } from "../pace.ts";
import { fromRfc3339, wallFromRfc3339 } from "../time.ts";
import type { FlowReference } from "../ports/flows.ts";
import { compileArguments } from "../tools/arguments.ts";
import { formatToolUri, parseToolUri } from "../tools/uri.ts";
import {
  flowDefinitionSchema,
  nodeIdSchema,
  nodeSchema,
  type FlowBody,
  type FlowDefinition,
  type FlowNode,
  type FlowValue,
} from "./definition.ts";
import { nearestName } from "../nearest-name.ts";
import type { NamedStep } from "./step-names.ts";
import { checkExpression, expressionIn, namedSteps } from "./transform.ts";

export type FlowProblem = {
  /** RFC 6901; empty: the whole. */
  readonly pointer: string;
  readonly message: string;
};

export interface CheckedFlow {
  /** Undefined where there are problems. */
  readonly definition: FlowDefinition | undefined;
  readonly problems: readonly FlowProblem[];
  readonly refs: readonly FlowReference[];
}

/** More than anybody writes; what reads it whole is not made for it. */
export const deepest = 64;
const tooDeep = `is nested deeper than ${deepest} levels`;
/** Bytes as JSON: each is read whole where it is used. */
const largestDefinition = 524_288;
const tooLarge = `has more than ${largestDefinition} bytes; divide the flow, and call the parts by nodes of kind 'flow'`;
const mostNodes = 500;
const deepestBodies = 8;
const mostProblems = 100;
/** Steps whose nearest name is looked for: each is compared with all that there are. */
const mostHints = 10;
/** What expressions name besides an item. */
const scopeNames: ReadonlySet<string> = new Set(["input", "steps", "context"]);

export async function checkFlow(given: JsonValue): Promise<CheckedFlow> {
  // Before anything reads it whole.
  const excess = excessOf(given);
  if (excess !== undefined) return { definition: undefined, problems: [excess], refs: [] };
  const parsed = flowDefinitionSchema.safeParse(given);
  if (!parsed.success) {
    const ofForm = schemaProblems(parsed.error)
      .slice(0, mostProblems)
      .map(({ path, says }) => ({ pointer: pointerTo(...path.map(String)), message: says }));
    const readable = readableOf(given);
    if (readable === undefined) return { definition: undefined, problems: ofForm, refs: [] };
    const checker = new Checker(ofForm, readable.unread);
    await checker.checkAll(readable);
    return { definition: undefined, problems: checker.problems, refs: [] };
  }
  const definition = parsed.data;
  const checker = new Checker();
  await checker.checkAll(definition);
  const { problems, refs } = checker;
  return { definition: problems.length === 0 ? definition : undefined, problems, refs };
}

interface Readable extends Pick<FlowDefinition, "input" | "context" | "start" | "nodes" | "output"> {
  /** Ids of the nodes that have faults of form. */
  readonly unread: ReadonlySet<string>;
}

/** What can be looked at beside faults of form, so that nobody mends those to hear of the next ones. */
function readableOf(given: JsonValue): Readable | undefined {
  if (!isJsonObject(given) || !isJsonObject(given["nodes"])) return undefined;
  const { input, context, start, output } = given;
  const unread = new Set<string>();
  const nodes: [string, FlowNode][] = [];
  for (const [id, node] of Object.entries(given["nodes"])) {
    const read = nodeIdSchema.safeParse(id).success ? nodeSchema.safeParse(node) : undefined;
    if (read?.success === true) nodes.push([id, read.data]);
    else unread.add(id);
  }
  return {
    input: isJsonObject(input) ? input : { type: "object" },
    context: isJsonObject(context) ? context : {},
    start: typeof start === "string" ? start : (nodes[0]?.[0] ?? [...unread][0] ?? ""),
    nodes: Object.fromEntries(nodes),
    ...(output === undefined ? {} : { output }),
    unread,
  };
}

/** @throws GatewayError `payload_too_large`; `flow_invalid` with all problems */
export async function requireFlow(
  given: JsonValue,
): Promise<{ readonly definition: FlowDefinition; readonly refs: readonly FlowReference[] }> {
  refuseTooLarge(given);
  const { definition, problems, refs } = await checkFlow(given);
  if (definition !== undefined) return { definition, refs };
  const [first] = problems;
  const more = problems.length > 1 ? ` and ${problems.length - 1} more, see 'problems'` : "";
  const where = first === undefined || first.pointer === "" ? "definition" : first.pointer;
  const says = first?.message.replace(/\.$/, "") ?? "cannot be used";
  throw new GatewayError("flow_invalid", `'${where}' ${says}${more}.`, {
    param: where,
    extra: { problems: problems.map(({ pointer, message }) => ({ pointer, message })) },
  });
}

/** @throws GatewayError `payload_too_large` */
export function refuseTooLarge(given: JsonValue): void {
  if (!isTooLarge(given)) return;
  throw new GatewayError("payload_too_large", `'definition' ${tooLarge}.`, {
    param: "definition",
    extra: { limit_bytes: largestDefinition },
  });
}

function excessOf(given: JsonValue): FlowProblem | undefined {
  if (isTooLarge(given)) return { pointer: "", message: tooLarge };
  if (isDeeperThan(given, deepest)) return { pointer: "", message: tooDeep };
  if (nodesIn(given) <= mostNodes) return undefined;
  return { pointer: "/nodes", message: `has more than ${mostNodes} nodes, with those of bodies` };
}

function isTooLarge(given: JsonValue): boolean {
  if (isLonger(given, largestDefinition)) return true;
  return !isDeeperThan(given, deepest) && Buffer.byteLength(JSON.stringify(given)) > largestDefinition;
}

/** Whether it has more characters as JSON for certain, found without looking at more than so many. */
function isLonger(given: JsonValue, characters: number): boolean {
  let room = characters;
  const waiting: JsonValue[] = [given];
  for (let value = waiting.pop(); value !== undefined; value = waiting.pop()) {
    room -= 1;
    if (typeof value === "string") room -= value.length;
    else if (Array.isArray(value)) {
      if (value.length > room) return true;
      for (const part of value) waiting.push(part);
    } else if (isJsonObject(value)) {
      for (const name in value) {
        room -= name.length + 1;
        if (room < 0) return true;
        waiting.push(value[name] ?? null);
      }
    }
    if (room < 0) return true;
  }
  return false;
}

/** Those of bodies, too; of what may be no flow yet. */
function nodesIn(body: JsonValue | undefined): number {
  if (!isJsonObject(body) || !isJsonObject(body["nodes"])) return 0;
  let count = 0;
  for (const node of Object.values(body["nodes"])) {
    count += 1;
    if (!isJsonObject(node)) continue;
    const { branches, body: inner } = node;
    count += nodesIn(inner);
    for (const branch of isJsonObject(branches) ? Object.values(branches) : []) count += nodesIn(branch);
  }
  return count;
}

function pointerTo(...names: readonly string[]): string {
  return names.map((name) => `/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

interface NamingExpression {
  readonly pointer: string;
  readonly steps: readonly NamedStep[];
  readonly visible: ReadonlySet<string>;
}

class Checker {
  readonly problems: FlowProblem[];
  /** Nodes of the flow itself that are there and cannot be looked at, so that nobody knows where they lead. */
  readonly #unread: ReadonlySet<string>;
  readonly refs: FlowReference[] = [];
  readonly #places = new Map<string, string>();
  /** Steps that expressions can see: of the body they stand in, and of those around it. */
  #visible: ReadonlySet<string> = new Set();
  /** Expressions name them; which there are is known at the end. */
  readonly #named: NamingExpression[] = [];
  readonly #pace = new Pace();
  #hints = 0;

  constructor(problems: readonly FlowProblem[] = [], unread: ReadonlySet<string> = new Set()) {
    this.problems = [...problems];
    this.#unread = unread;
  }

  async checkAll(definition: Omit<Readable, "unread">): Promise<void> {
    await this.#checkSchema("/input", definition.input, { isObject: true });
    await this.#checkValue("/context", definition.context);
    for (const name of ["tenantId", "buCode"]) {
      if (Object.hasOwn(definition.context, name)) {
        this.#report(`/context/${name}`, "is always there and cannot be given; the run's caller decides it");
      }
    }
    await this.#checkBody("", definition, 0);
    for (const named of this.#named) await this.#checkSteps(named);
  }

  /** More are not told, so nothing is looked at for them but what the flow refers to. */
  get #isFull(): boolean {
    return this.problems.length >= mostProblems;
  }

  #report(pointer: string, message: string): void {
    if (!this.#isFull) this.problems.push({ pointer, message });
  }

  async #checkBody(base: string, body: FlowBody, depth: number): Promise<void> {
    if (depth > deepestBodies) {
      this.#report(base, `is a body within more than ${deepestBodies} others`);
      return;
    }
    const nodes = `${base}/nodes`;
    const around = this.#visible;
    const ids = new Set([...Object.keys(body.nodes), ...(depth === 0 ? this.#unread : [])]);
    this.#visible = new Set([...around, ...ids]);
    for (const id of ids) this.#noteId(id, `${nodes}${pointerTo(id)}`);
    if (!ids.has(body.start)) {
      this.#report(`${base}/start`, `names no node; there are ${list([...ids])}`);
    } else {
      this.#checkEdges(nodes, body, ids);
    }
    if (body.output !== undefined) await this.#checkValue(`${base}/output`, body.output);
    for (const [id, node] of Object.entries(body.nodes)) {
      await this.#checkNode(`${nodes}${pointerTo(id)}`, node, depth);
    }
    this.#visible = around;
  }

  /** One over all bodies, since expressions know steps by it. */
  #noteId(id: string, pointer: string): void {
    const other = this.#places.get(id);
    if (other === undefined) this.#places.set(id, pointer);
    else this.#report(pointer, `has the id of ${other}; ids are unique in the whole flow`);
  }

  #checkEdges(base: string, { start, nodes }: FlowBody, ids: ReadonlySet<string>): void {
    const isWhole = Object.keys(nodes).length === ids.size;
    // All may be reached where it is not known where some lead.
    const waiting = isWhole ? [start] : Object.keys(nodes);
    const reached = new Set<string>(waiting);
    for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
      const node = Object.hasOwn(nodes, id) ? nodes[id] : undefined;
      if (node === undefined) continue;
      for (const { field, to } of edgesOf(node)) {
        if (!ids.has(to)) {
          this.#report(`${base}${pointerTo(id)}/${field}`, `leads to '${to}', which is no node here`);
        } else if (!reached.has(to)) {
          reached.add(to);
          waiting.push(to);
        }
      }
    }
    for (const id of Object.keys(nodes)) {
      if (!reached.has(id)) this.#report(`${base}${pointerTo(id)}`, "is never reached: no node leads to it");
    }
    const loop = findLoop(nodes);
    if (loop !== undefined) {
      this.#report(
        `${base}${pointerTo(loop.from)}/${loop.field}`,
        `leads back to '${loop.to}' without a wait or an approval on the way; use 'map' for lists, or wait before it is done again`,
      );
    }
  }

  async #checkNode(pointer: string, node: FlowNode, depth: number): Promise<void> {
    switch (node.kind) {
      case "tool":
        await this.#checkTool(pointer, node);
        await this.#checkValue(`${pointer}/arguments`, node.arguments);
        return;
      case "condition":
        return this.#checkExpression(`${pointer}/if`, node.if);
      case "switch":
        return this.#checkExpression(`${pointer}/on`, node.on);
      case "transform":
        return this.#checkExpression(`${pointer}/expression`, node.expression);
      case "wait":
        return this.#checkWait(pointer, node);
      case "approval":
        if (node.form !== undefined) await this.#checkSchema(`${pointer}/form`, node.form, { isObject: true });
        return this.#checkValue(`${pointer}/message`, node.message);
      case "flow":
        this.#refer(`${pointer}/name`, formatToolUri("flow", node.name));
        return this.#checkValue(`${pointer}/input`, node.input);
      case "agent":
        this.#refer(`${pointer}/agent`, formatToolUri("agent", node.agent));
        await this.#checkValue(`${pointer}/prompt`, node.prompt);
        return this.#checkValue(`${pointer}/context`, node.context ?? {});
      case "model":
        await this.#checkValue(`${pointer}/model`, node.model ?? null);
        for (const [index, { content }] of node.messages.entries()) {
          await this.#checkValue(`${pointer}/messages/${index}/content`, content);
        }
        return;
      case "end":
        return this.#checkValue(`${pointer}/output`, node.output ?? null);
      case "fail":
        return this.#checkValue(`${pointer}/message`, node.message);
      case "parallel":
        for (const [name, body] of Object.entries(node.branches)) {
          await this.#checkBody(`${pointer}/branches${pointerTo(name)}`, body, depth + 1);
        }
        return;
      case "map":
        if (scopeNames.has(node.as)) this.#report(`${pointer}/as`, `cannot be '${node.as}', which is something else`);
        await this.#checkItems(pointer, node.items);
        return this.#checkBody(`${pointer}/body`, node.body, depth + 1);
      default:
        return node satisfies never;
    }
  }

  async #checkTool(pointer: string, { uri, name }: FlowNode & { readonly kind: "tool" }): Promise<void> {
    if (name !== undefined) this.#refer(`${pointer}/name`, name);
    if (typeof uri !== "string") return this.#checkValue(`${pointer}/uri`, uri ?? null);
    this.#refer(`${pointer}/uri`, uri);
    try {
      parseToolUri(uri);
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      this.#report(`${pointer}/uri`, error.message);
    }
  }

  async #checkWait(pointer: string, { until, duration_ms: duration }: FlowNode & { kind: "wait" }): Promise<void> {
    if (typeof until === "string" && fromRfc3339(until) === undefined && wallFromRfc3339(until) === undefined) {
      this.#report(`${pointer}/until`, "is no time; write it as '2026-12-01T09:00:00Z'");
    }
    if (until !== undefined) await this.#checkValue(`${pointer}/until`, until);
    if (duration !== undefined) await this.#checkValue(`${pointer}/duration_ms`, duration);
  }

  async #checkItems(pointer: string, items: FlowValue): Promise<void> {
    if (!Array.isArray(items) && expressionIn(items) === undefined) {
      this.#report(`${pointer}/items`, 'must be a list, or {"$": "<JSONata>"} that comes to one');
    }
    await this.#checkValue(`${pointer}/items`, items);
  }

  async #checkValue(pointer: string, value: FlowValue): Promise<void> {
    if (Array.isArray(value)) {
      for (const [index, part] of (value as readonly JsonValue[]).entries()) {
        await this.#checkValue(`${pointer}/${index}`, part);
      }
      return;
    }
    if (!isJsonObject(value)) return;
    if (!Object.hasOwn(value, "$")) {
      for (const [name, part] of Object.entries(value)) await this.#checkValue(`${pointer}${pointerTo(name)}`, part);
      return;
    }
    const expression = expressionIn(value);
    if (expression === undefined) return this.#report(`${pointer}/$`, "must be a text: an expression");
    if (Object.keys(value).length > 1) this.#report(pointer, "has '$' and other fields; an expression stands alone");
    await this.#checkExpression(`${pointer}/$`, expression);
  }

  async #checkExpression(pointer: string, expression: string): Promise<void> {
    if (this.#isFull) return;
    await this.#pace.turn();
    const fault = await checkExpression(expression);
    if (fault === undefined) {
      this.#named.push({ pointer, steps: await namedSteps(expression), visible: this.#visible });
      return;
    }
    const at = fault.position === undefined ? "" : ` (character ${fault.position})`;
    this.#report(pointer, `${fault.message}${at}`);
  }

  /** A step that there is not comes to nothing, and nobody would be told. */
  async #checkSteps({ pointer, steps, visible }: NamingExpression): Promise<void> {
    for (const { name, position } of steps) {
      if (this.#isFull) return;
      if (visible.has(name)) continue;
      const elsewhere = this.#places.get(name);
      const why =
        elsewhere !== undefined
          ? `which is ${elsewhere} and cannot be seen from here`
          : `which there is not; ${await this.#hintFor(name, [...visible])}`;
      this.#report(pointer, `names the step '${name}', ${why} (character ${position})`);
    }
  }

  async #hintFor(name: string, visible: readonly string[]): Promise<string> {
    this.#hints += 1;
    await this.#pace.turn();
    const nearest = this.#hints > mostHints ? undefined : nearestName(name, visible);
    return nearest === undefined ? `there are ${list(visible)}` : `is '${nearest}' meant?`;
  }

  async #checkSchema(pointer: string, schema: JsonObject, { isObject }: { readonly isObject: boolean }): Promise<void> {
    if (this.#isFull) return;
    await this.#pace.turn();
    try {
      compileArguments(schema);
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      this.#report(pointer, error.message);
      return;
    }
    if (isObject && schema["type"] !== "object") this.#report(`${pointer}/type`, "must be 'object'");
  }

  #refer(pointer: string, value: string): void {
    this.refs.push({ field: pointer.slice(1).replaceAll("/", "."), value });
  }
}

interface Edge {
  readonly field: string;
  readonly to: string;
}

function edgesOf(node: FlowNode): readonly Edge[] {
  const edges: Edge[] = [];
  const add = (field: string, to: string | undefined): void => {
    if (to !== undefined) edges.push({ field, to });
  };
  if ("next" in node) add("next", node.next);
  if ("on_error" in node && node.on_error !== "fail" && node.on_error !== "continue") add("on_error", node.on_error);
  if (node.kind === "condition") {
    add("then", node.then);
    add("else", node.else);
  }
  if (node.kind === "switch") {
    for (const [name, to] of Object.entries(node.cases)) add(`cases${pointerTo(name)}`, to);
    add("default", node.default);
  }
  return edges;
}

/** A way back on which nobody waits: it would go round as fast as it can. It goes as deep as there are nodes. */
function findLoop(nodes: FlowBody["nodes"]): (Edge & { readonly from: string }) | undefined {
  const states = new Map<string, "open" | "done">();
  const visit = (id: string): (Edge & { readonly from: string }) | undefined => {
    const node = Object.hasOwn(nodes, id) ? nodes[id] : undefined;
    if (node === undefined || node.kind === "wait" || node.kind === "approval") return undefined;
    states.set(id, "open");
    for (const edge of edgesOf(node)) {
      const state = states.get(edge.to);
      if (state === "open") return { ...edge, from: id };
      const found = state === undefined ? visit(edge.to) : undefined;
      if (found !== undefined) return found;
    }
    states.set(id, "done");
    return undefined;
  };
  for (const id of Object.keys(nodes)) {
    const found = states.has(id) ? undefined : visit(id);
    if (found !== undefined) return found;
  }
  return undefined;
}

function list(names: readonly string[]): string {
  return names.length === 0 ? "none" : names.slice(0, 20).join(", ");
}
