/**
 * What a schema says is wrong with a value, for every error that tells it: each puts the place into the spelling of its
 * surface and the rest behind it ("'config.host' is required").
 */
import type * as z from "zod";

export interface SchemaProblem {
  /** Names and indexes; empty: the value as a whole. */
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

/** Unknown fields first: where a name is misspelt, that another one is missing only follows from it. */
export function schemaProblems({ issues }: Pick<z.core.$ZodError, "issues">): readonly SchemaProblem[] {
  const problems = issues.flatMap((issue) => problemsOf(issue));
  return [...problems.filter(({ kind }) => kind === "unknown"), ...problems.filter(({ kind }) => kind === "wrong")];
}

/** The first thing that is wrong. */
export function schemaProblem(error: Pick<z.core.$ZodError, "issues">): SchemaProblem {
  return schemaProblems(error)[0] ?? { path: [], kind: "wrong", says: "is not valid" };
}

function problemsOf(issue: Issue): readonly SchemaProblem[] {
  const path = issue.path.map((part) => (typeof part === "number" ? part : String(part)));
  const below = (inner: Issue): readonly SchemaProblem[] => problemsOf({ ...inner, path: [...path, ...inner.path] });
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => ({ path: [...path, key], kind: "unknown", says: "is not a known field" }));
  }
  // What is wrong with a record's key is within.
  if (issue.code === "invalid_key") return issue.issues.flatMap(below);
  if (issue.code !== "invalid_union") return [{ path, kind: "wrong", says: said(issue) }];
  const meant = meantBranch(issue.errors);
  return meant === undefined ? [{ path, kind: "wrong", says: saidOfForms(issue) }] : meant.flatMap(below);
}

/** The branch of a union that the value came furthest in; of those that it did not enter, the one whose type it has. */
function meantBranch(branches: Branches): readonly Issue[] | undefined {
  const depthOf = (issues: readonly Issue[]): number => Math.max(0, ...issues.map(({ path }) => path.length));
  const [deepest] = branches.toSorted((a, b) => depthOf(b) - depthOf(a));
  if (deepest !== undefined && depthOf(deepest) > 0) return deepest;
  return branches.find((issues) => issues.length > 0 && !issues.some(({ code }) => code === "invalid_type"));
}

function saidOfForms({ errors, message }: z.core.$ZodIssueInvalidUnion): string {
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
  const text = message.replace(/^Invalid (?:input|option): /, "").replace(/\.$/, "");
  return isOfLibrary(text) ? text.charAt(0).toLowerCase() + text.slice(1) : text;
}
