/** What a stage would be made of, as `synthesize.ts` writes it, and how tests read it. */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

export interface SynthesizedResource {
  readonly urn: string;
  /** Pulumi's name of the type: `aws:sqs/queue:Queue`. */
  readonly type: string;
  readonly name: string;
  readonly inputs: Inputs;
  readonly protect: boolean;
  readonly retainOnDelete: boolean;
  /** URNs of what is made before. */
  readonly after: readonly string[];
}

export interface Synthesis {
  readonly app: Inputs;
  readonly outputs: Inputs;
  readonly resources: readonly SynthesizedResource[];
}

/** What tests read out of resources; each says what it expects to be there. */
// oxlint-disable-next-line typescript/no-explicit-any
export type Inputs = Readonly<Record<string, any>>;

export interface Statement {
  readonly effect: string;
  readonly actions: readonly string[];
  readonly resources: readonly string[];
  readonly principals: readonly { readonly type: string; readonly identifiers: readonly string[] }[];
  readonly conditions: readonly unknown[];
}

const root = join(import.meta.dirname, "../..");
const run = promisify(execFile);

/** What an operator has set for a stage that is complete. */
export const completeSettings: Readonly<Record<string, string>> = {
  DATABASE_URL: "libsql://tools-acme.turso.io",
  SST_SECRET_AdminKey: "an-operator-key-of-some-length",
  SST_SECRET_DatabaseAuthToken: "database-token",
};

/** @throws Error with what the evaluation wrote, where it failed */
export async function synthesize(
  stage: string,
  settings: Readonly<Record<string, string>> = completeSettings,
): Promise<Stack> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-infra-"));
  try {
    const file = join(directory, "synthesis.json");
    // Only what is set here, so that no account and no setting of this machine shows through.
    const env = { PATH: process.env["PATH"] ?? "", AWS_EC2_METADATA_DISABLED: "true", ...settings };
    await run(process.execPath, [join(import.meta.dirname, "synthesize.ts"), stage, file], { cwd: root, env });
    return new Stack(JSON.parse(await readFile(file, "utf8")) as Synthesis);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

export class Stack {
  readonly app: Inputs;
  readonly outputs: Inputs;
  readonly resources: readonly SynthesizedResource[];

  constructor({ app, outputs, resources }: Synthesis) {
    this.app = app;
    this.outputs = outputs;
    this.resources = resources;
  }

  /** `sqs/queue` for `aws:sqs/queue:Queue`. */
  of(kind: string): readonly SynthesizedResource[] {
    return this.resources.filter(({ type }) => type.startsWith(`aws:${kind}:`));
  }

  one(kind: string, name?: string): SynthesizedResource {
    const found = this.of(kind).filter((resource) => name === undefined || resource.name === name);
    const [first] = found;
    if (first === undefined || found.length > 1) throw new Error(`${found.length} of ${kind} ${name ?? ""}`);
    return first;
  }

  /** A function of ours by the name it has in `infra/`. */
  function(name: string): SynthesizedResource {
    return this.one("lambda/function", ["PluginBox", "CodeBox"].includes(name) ? name : `${name}Function`);
  }

  get functionNames(): readonly string[] {
    return this.of("lambda/function").map(({ name }) => name.replace(/Function$/, ""));
  }

  /** Name in `infra/` of the function with this ARN. */
  functionOfArn(arn: string): string {
    const name = this.functionNames.find((candidate) => arnOf(this.function(candidate)) === arn);
    if (name === undefined) throw new Error(`no function has ${arn}`);
    return name;
  }

  /** What the role of a function allows. */
  allowed(name: string): readonly Statement[] {
    const role = this.one("iam/role", `${name}Role`);
    return policiesOf(role).flatMap(statementsOf);
  }
}

export function policiesOf(role: SynthesizedResource): readonly string[] {
  const policies: readonly { readonly policy: string }[] = role.inputs["inlinePolicies"] ?? [];
  return policies.map(({ policy }) => policy);
}

interface Loose {
  readonly effect?: string;
  readonly Effect?: string;
  readonly [key: string]: unknown;
}

/** Of a policy document, as text or not, or of what a mock makes of the arguments for one. */
export function statementsOf(policy: unknown): readonly Statement[] {
  const document: unknown = typeof policy === "string" ? JSON.parse(policy) : policy;
  const { Statement: all } = document as { readonly Statement: readonly Loose[] | Loose };
  return [all].flat().map((statement) => ({
    effect: statement.effect ?? statement.Effect ?? "Allow",
    actions: [statement["actions"] ?? statement["Action"] ?? []].flat().map(String),
    resources: [statement["resources"] ?? statement["Resource"] ?? []].flat().map(String),
    principals: toPrincipals(statement["principals"] ?? statement["Principal"]),
    conditions: [statement["conditions"] ?? statement["Condition"] ?? []].flat(),
  }));
}

function toPrincipals(given: unknown): Statement["principals"] {
  if (Array.isArray(given)) return given as Statement["principals"];
  if (typeof given !== "object" || given === null) return [];
  return Object.entries(given).map(([type, identifiers]) => ({ type, identifiers: [identifiers].flat().map(String) }));
}

export function arnOf({ inputs, type, name }: SynthesizedResource): string {
  const service = type.split(":")[1]?.split("/")[0] ?? "";
  return `arn:aws:${service}:eu-central-1:123456789012:${String(inputs["name"] ?? name)}`;
}
