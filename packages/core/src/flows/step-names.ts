/**
 * Which steps an expression names: `steps.find`, `$.steps.find`, `$$.steps.find`, `$steps.find`. What stands where
 * `steps` is a field of something else, within a path or a filter, says nothing of the flow's.
 */

export interface NamedStep {
  readonly name: string;
  /** Character at which the name ends, from 1, as the language counts. */
  readonly position: number;
}

/** Parts of syntax that look at the items of a list, and not at what the expression is given. */
const ofItems: ReadonlySet<string> = new Set(["stages", "predicate", "group", "terms", "update", "delete"]);

/** @param syntax what the parser has made of an expression */
export function stepsNamedIn(syntax: unknown): readonly NamedStep[] {
  const named: NamedStep[] = [];
  const ofVariable: NamedStep[] = [];
  let isBound = false;
  const visit = (part: unknown, atRoot: boolean): void => {
    if (Array.isArray(part)) {
      for (const each of part) visit(each, atRoot);
      return;
    }
    if (typeof part !== "object" || part === null || part instanceof RegExp) return;
    const node = part as Readonly<Record<string, unknown>>;
    isBound ||= bindsSteps(node);
    const steps = node["type"] === "path" && Array.isArray(node["steps"]) ? (node["steps"] as readonly unknown[]) : [];
    const found = stepIn(steps.map(fieldOf), atRoot);
    if (found !== undefined) (found.ofVariable ? ofVariable : named).push(found.step);
    for (const [field, value] of Object.entries(node)) {
      if (field !== "steps" || steps.length === 0) visit(value, atRoot && !ofItems.has(field));
    }
    for (const [index, step] of steps.entries()) visit(step, atRoot && index === 0);
  };
  visit(syntax, true);
  return isBound ? named : [...named, ...ofVariable];
}

interface Field {
  readonly type: unknown;
  readonly value: unknown;
  readonly position: number;
}

function fieldOf(step: unknown): Field {
  const { type, value, position } = (step ?? {}) as Readonly<Record<string, unknown>>;
  return { type, value, position: typeof position === "number" ? position : 0 };
}

/** Of a path that begins with the flow's steps. */
function stepIn(
  path: readonly Field[],
  atRoot: boolean,
): { readonly step: NamedStep; readonly ofVariable: boolean } | undefined {
  const [first] = path;
  const isRoot = first?.type === "variable" && (first.value === "$" || (atRoot && first.value === ""));
  const [steps, name] = isRoot ? path.slice(1) : path;
  const ofVariable = !isRoot && steps?.type === "variable";
  const isSteps = steps?.value === "steps" && (ofVariable || (steps.type === "name" && (isRoot || atRoot)));
  if (!isSteps || name?.type !== "name" || typeof name.value !== "string") return undefined;
  return { step: { name: name.value, position: name.position }, ofVariable };
}

/** `$steps` is something else then. */
function bindsSteps({ type, lhs, arguments: parameters, focus, index }: Readonly<Record<string, unknown>>): boolean {
  const bound =
    type === "bind" ? [lhs] : type === "lambda" && Array.isArray(parameters) ? (parameters as unknown[]) : [];
  return focus === "steps" || index === "steps" || bound.some((one) => fieldOf(one).value === "steps");
}
