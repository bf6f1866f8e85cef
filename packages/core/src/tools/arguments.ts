/**
 * A tool's arguments: read strictly from what a model wrote, completed by the schema's defaults and
 * checked against it before anything leaves (CHAT-18). A failure is a list that a model can act on.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import {
  isDeeperThan,
  isJsonObject,
  isLongNumber,
  parseWatchingDigits,
  type JsonObject,
  type JsonValue,
} from "../json.ts";
import { shorten, SchemaDocument } from "./json-schema/document.ts";
import { Filler, FillPlans } from "./json-schema/fill.ts";
import { RuleCompiler } from "./json-schema/rules.ts";
import { type ArgumentError, Budget, ErrorList, Evaluated, type Frame } from "./json-schema/run.ts";

export type { ArgumentError };

export type CheckedArguments =
  | { readonly ok: true; readonly value: JsonObject }
  | { readonly ok: false; readonly errors: readonly ArgumentError[] };

export interface ArgumentValidator {
  /**
   * Defaults and unambiguous types applied to a copy, then checked.
   * @throws GatewayError `invalid_definition` for a schema that multiplies or circles without an end
   */
  validate(given: JsonValue, options?: ValidateOptions): CheckedArguments;
  /**
   * Arguments that were checked, for JSON: texts are the whole numbers whose digits they are, where nothing but a number
   * fits. `JSON.stringify` writes them; whatever else reads them takes them for objects.
   */
  withLongNumbers(args: JsonObject): JsonObject;
}

export interface ValidateOptions {
  /** A whole number that a double cannot hold may be the text of its digits. */
  readonly longNumbers?: boolean | undefined;
}

/** Levels of nesting in arguments. */
const deepestArguments = 100;
const tooDeep = `is nested more than ${deepestArguments} levels deep`;

const validators = new WeakMap<JsonObject, ArgumentValidator>();

/**
 * Compiled once for each schema object. Schemas without `type` are taken as object schemas.
 * @throws GatewayError `invalid_definition` naming the place in the schema: unknown types, misshapen
 * keywords, references that lead out of it, patterns that RE2 does not know
 */
export function compileArguments(schema: JsonObject): ArgumentValidator {
  const known = validators.get(schema);
  if (known !== undefined) return known;
  const validator = createValidator(schema);
  validators.set(schema, validator);
  return validator;
}

function createValidator(schema: JsonObject): ArgumentValidator {
  const document = new SchemaDocument(schema);
  const compiler = new RuleCompiler(document);
  const rule = compiler.compile(schema, document.root, "");
  const plans = new FillPlans(compiler);
  return {
    validate(given, { longNumbers = false } = {}) {
      if (!isJsonObject(given)) return failure("must be a JSON object");
      if (isDeeperThan(given, deepestArguments)) return failure(tooDeep);
      const budget = new Budget();
      const value = new Filler(plans, budget).fill(given, schema, document.root);
      const check = (frame: Pick<Frame, "longNumbers">): CheckedArguments => {
        const errors = new ErrorList();
        const evaluated = document.tracksEvaluation ? new Evaluated() : undefined;
        return isJsonObject(value) && rule.evaluate(value, { budget, place: undefined, errors, evaluated, ...frame })
          ? { ok: true, value }
          : { ok: false, errors: errors.errors };
      };
      const checked = check({});
      // What fits as it is stays so, where both a number and a text would.
      return checked.ok || !longNumbers || !hasLongNumber(value) ? checked : check({ longNumbers });
    },
    withLongNumbers(args) {
      if (!hasLongNumber(args)) return args;
      const written = new Filler(plans, new Budget(), "as numbers").fill(args, schema, document.root);
      return isJsonObject(written) ? written : args;
    },
  };
}

/**
 * What is wrong with a value that is no tool's arguments, such as a result; nothing is filled in. That it cannot be
 * checked is a fault like others: what gave it has been carried out.
 */
export function checkValue(schema: JsonObject, value: JsonValue): readonly ArgumentError[] {
  if (isDeeperThan(value, deepestArguments)) return [{ pointer: "", message: tooDeep }];
  try {
    const { document, rule } = compileValue(schema);
    const errors = new ErrorList();
    const evaluated = document.tracksEvaluation ? new Evaluated() : undefined;
    rule.evaluate(value, { budget: new Budget(), place: undefined, errors, evaluated });
    return errors.errors;
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    return [{ pointer: "", message: `cannot be checked: ${error.message.replace(/\.$/, "")}` }];
  }
}

interface CompiledValue {
  readonly document: SchemaDocument;
  readonly rule: ReturnType<RuleCompiler["compile"]>;
}

const compiledValues = new WeakMap<JsonObject, CompiledValue>();

function compileValue(schema: JsonObject): CompiledValue {
  const known = compiledValues.get(schema);
  if (known !== undefined) return known;
  const document = new SchemaDocument(schema);
  const made = { document, rule: new RuleCompiler(document).compile(schema, document.root, "") };
  compiledValues.set(schema, made);
  return made;
}

function hasLongNumber(value: JsonValue): boolean {
  if (typeof value !== "object" || value === null) return isLongNumber(value);
  return (Array.isArray(value) ? value : Object.values(value)).some(hasLongNumber);
}

function failure(message: string): CheckedArguments {
  return { ok: false, errors: [{ pointer: "", message }] };
}

/**
 * The arguments of a tool call as a model wrote them. Blank text means no arguments; anything else
 * must be one JSON object. Nothing is repaired: cut-off arguments must never run. Whole numbers that would become others
 * are the texts of their digits.
 */
export function parseToolArguments(text: string): CheckedArguments {
  if (text.trim() === "") return { ok: true, value: {} };
  let parsed: JsonValue;
  try {
    parsed = parseWatchingDigits(text, (digits) => digits);
  } catch (error) {
    const reason = error instanceof Error ? shorten(error.message, 160) : "unreadable";
    return failure(`is not valid JSON (${reason}); send one complete JSON object`);
  }
  if (!isJsonObject(parsed)) return failure("must be a JSON object");
  if (isDeeperThan(parsed, deepestArguments)) return failure(tooDeep);
  return { ok: true, value: parsed };
}
