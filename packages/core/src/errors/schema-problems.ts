/**
 * What a schema says is wrong with a value, for every error that tells it: each puts the place into the spelling of its
 * surface and the rest behind it ("'config.host' is required").
 */
import * as z from "zod";
import { isJsonObject } from "../json.ts";
import { nearestName } from "../nearest-name.ts";
import { GatewayError, type ErrorDetails } from "./gateway-error.ts";

export interface SchemaProblem {
  /** Names, of long ones the beginning, and indexes; empty: the value as a whole. */
  readonly path: readonly (string | number)[];
  /** `unknown`: there is no such field. */
  readonly kind: "unknown" | "wrong";
  /** What to say of the place, without a full stop: "is required", "must be a host name". */
  readonly says: string;
}

type Issue = z.core.$ZodIssue;
type Branches = readonly (readonly Issue[])[];

const required = "is required";
/** Of a union, told in one line. */
const mostForms = 3;
/** Unknown names that get a hint: each is compared with all that there are, and callers choose how many they send. */
const mostHints = 10;
/** Known names told in one line. */
const mostKnown = 20;
/** Told of one value, the first in the message as well. */
const mostTold = 10;
/** Looked at, of one value and of the names of one object: whoever sends it chooses how much is wrong with it. */
const mostRead = 1_000;
/** Who sends a name chooses its length, and it is told again with each problem below it. */
const longestName = 200;

/**
 * The fields of the object that refused some. An issue does not have them, the schema that raised it is not told with
 * it, and a path alone does not say which branch of a union was meant: only this hook sees both, and nothing is said by it.
 */
const knownFields = new WeakMap<readonly string[], readonly string[]>();
z.config({
  customError(issue) {
    if (issue.code !== "unrecognized_keys") return undefined;
    // Not `instanceof` a class of the library's core, which as a value takes all of it along into each bundle.
    const shape: unknown = Reflect.get(issue.inst?._zod.def ?? {}, "shape");
    if (isJsonObject(shape)) knownFields.set(issue.keys, Object.keys(shape));
    return undefined;
  },
});

/** Unknown fields first: where a name is misspelt, that another one is missing only follows from it. */
export function schemaProblems({ issues }: Pick<z.core.$ZodError, "issues">): readonly SchemaProblem[] {
  const found = issues.slice(0, mostRead).flatMap((issue) => problemsOf(issue));
  const unknown = found.filter(({ kind }) => kind === "unknown");
  return [
    ...unknown.slice(0, mostHints).map(withHint),
    ...unknown.slice(mostHints),
    ...found.filter(({ kind }) => kind === "wrong"),
  ];
}

/** Enough of it to be known by. */
export function toToldName(name: string): string {
  return name.length > longestName ? `${name.slice(0, longestName)}…` : name;
}

/** A problem in the spelling of its surface. */
export interface ToldProblem {
  readonly param: string;
  readonly message: string;
}

/** For an error's `details`: what its message, which tells the first one, has no room for. */
export function listedProblems(told: readonly ToldProblem[]): Pick<ErrorDetails, "extra"> {
  if (told.length < 2) return {};
  return { extra: { problems: told.slice(0, mostTold).map(({ param, message }) => ({ param, message })) } };
}

/** The first thing that is wrong. */
export function schemaProblem(error: Pick<z.core.$ZodError, "issues">): SchemaProblem {
  return schemaProblems(error)[0] ?? { path: [], kind: "wrong", says: "is not valid" };
}

/**
 * Runs them all, and throws what is wrong as one error: the first, with the list of all.
 * @param checks each throws the first thing that it finds
 */
export function checkAll(checks: readonly (() => void)[]): void {
  const faults: GatewayError[] = [];
  for (const check of checks) {
    try {
      check();
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      faults.push(error);
    }
  }
  const [first] = faults;
  if (first === undefined) return;
  const { code, message, details } = first;
  throw new GatewayError(code, message, { ...details, ...listedProblems(faults.map(toTold)) });
}

function toTold({ message, details: { param = "" } }: GatewayError): ToldProblem {
  return { param, message: message.replace(`'${param}' `, "").replace(/\.$/, "") };
}

interface FoundProblem extends SchemaProblem {
  /** Of an unknown one: those that there are. */
  readonly known?: readonly string[] | undefined;
}

function withHint({ known, ...problem }: FoundProblem): SchemaProblem {
  if (known === undefined) return problem;
  const nearest = nearestName(String(problem.path.at(-1)), known);
  if (nearest !== undefined) return { ...problem, says: `${problem.says}; '${nearest}' may be meant` };
  const more = known.length > mostKnown ? ` and ${known.length - mostKnown} more` : "";
  const names = known.length === 0 ? "there are none" : `known: ${known.slice(0, mostKnown).join(", ")}${more}`;
  return { ...problem, says: `${problem.says}; ${names}` };
}

function problemsOf(issue: Issue): readonly FoundProblem[] {
  const path = issue.path.map((part) => (typeof part === "number" ? part : toToldName(String(part))));
  const below = (inner: Issue): readonly FoundProblem[] => problemsOf({ ...inner, path: [...path, ...inner.path] });
  if (issue.code === "unrecognized_keys") {
    const known = knownFields.get(issue.keys);
    const says = isOfLibrary(issue.message) ? "is not a known field" : withoutLead(issue.message);
    return issue.keys
      .slice(0, mostRead)
      .map((key) => ({ path: [...path, toToldName(key)], kind: "unknown", says, known }));
  }
  // What is wrong with a record's key is within.
  if (issue.code === "invalid_key") return issue.issues.slice(0, mostRead).flatMap(below);
  if (issue.code !== "invalid_union") return [{ path, kind: "wrong", says: said(issue) }];
  const mixed = mixedForms(issue.errors);
  if (mixed.length > 0) return mixed.map(({ key, says }) => ({ path: [...path, key], kind: "wrong", says }));
  const meant = meantBranch(issue.errors);
  return meant === undefined
    ? [{ path, kind: "wrong", says: saidOfForms(issue) }]
    : meant.slice(0, mostRead).flatMap(below);
}

interface MixedField {
  readonly key: string;
  readonly says: string;
}

/** Where all that one branch of a union refuses are fields of the others: each is known, but not beside the rest. */
function mixedForms(branches: Branches): readonly MixedField[] {
  for (const [refused, ...more] of branches) {
    if (refused?.code !== "unrecognized_keys" || refused.path.length > 0 || more.length > 0) continue;
    const own = knownFields.get(refused.keys) ?? [];
    const others = new Set(branches.flat().flatMap((each) => fieldsBeside(each, own)));
    if (!refused.keys.every((key) => others.has(key))) continue;
    const says = `does not go with ${own.map((name) => `'${name}'`).join(", ")}`;
    return refused.keys.slice(0, mostRead).map((key) => ({ key, says }));
  }
  return [];
}

function fieldsBeside(issue: Issue, own: readonly string[]): readonly string[] {
  if (issue.code !== "unrecognized_keys" || issue.path.length > 0) return [];
  return (knownFields.get(issue.keys) ?? []).filter((name) => !own.includes(name));
}

/** The branch of a union that the value came furthest in; of those that it did not enter, the one whose type it has. */
function meantBranch(branches: Branches): readonly Issue[] | undefined {
  const depthOf = (issues: readonly Issue[]): number =>
    issues.reduce((most, { path }) => Math.max(most, path.length), 0);
  const [deepest] = branches.toSorted((a, b) => depthOf(b) - depthOf(a));
  if (deepest !== undefined && depthOf(deepest) > 0) return deepest;
  return branches.find((issues) => issues.length > 0 && !issues.some(({ code }) => code === "invalid_type"));
}

function saidOfForms(issue: z.core.$ZodIssueInvalidUnion): string {
  const { errors, message } = issue;
  // Of a field that says which form is meant; as the library says it of an enumeration.
  if ("options" in issue && issue.options !== undefined)
    return `is not valid: expected one of ${issue.options.map((one) => JSON.stringify(one)).join("|")}`;
  const all = errors.flat();
  if (all.length > 0 && all.every(isMissing)) return required;
  const forms = [...new Set(all.map((each) => withoutLead(each.message)))];
  if (forms.length === 0) return said({ message });
  return forms.length > mostForms ? "has none of the forms that it may have" : `is not valid: ${forms.join(", or ")}`;
}

function said(issue: Pick<Issue, "message"> & Partial<Issue>): string {
  if (isMissing(issue)) return required;
  const text = withoutLead(issue.message);
  return isOfLibrary(issue.message) ? `is not valid: ${text}` : text;
}

/** The library's own words are sentences; ours say something of the field. */
function isOfLibrary(message: string): boolean {
  return /^(?:Invalid|Too (?:small|big)|Unrecognized|Expected)\b/.test(message);
}

function isMissing({ code, message }: Partial<Issue>): boolean {
  return code === "invalid_type" && message?.endsWith("received undefined") === true;
}

function withoutLead(message: string): string {
  const text = message
    .replace(/^Invalid (?:input|option): /, "")
    // The library's word for an object whose names are free; who writes JSON has no other.
    .replace(/^expected record\b/, "expected object")
    .replace(/\.$/, "");
  return isOfLibrary(text) ? text.charAt(0).toLowerCase() + text.slice(1) : text;
}
