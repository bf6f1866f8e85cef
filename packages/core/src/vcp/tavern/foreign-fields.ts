/**
 * Fields of foreign JSON, which may hold anything: a field of another kind counts as left out, a text that is too
 * long is refused, and nothing is copied that was not asked for by name.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";

export class ForeignFields {
  readonly #fields: JsonObject;
  readonly #path: string;

  constructor(value: JsonValue | undefined, path: string) {
    this.#fields = isJsonObject(value) ? value : {};
    this.#path = path;
  }

  has(name: string): boolean {
    return Object.hasOwn(this.#fields, name);
  }

  /** @throws GatewayError `invalid_definition` for a longer one */
  text(name: string, longest: number): string {
    const value = this.#get(name);
    const text = typeof value === "string" ? value : typeof value === "number" ? String(value) : "";
    if (text.length > longest) {
      throw refused(`${this.#path}${name}`, `has ${text.length} characters; ${longest} are the most`);
    }
    return text.isWellFormed() ? text : text.toWellFormed();
  }

  flag(name: string): boolean | undefined {
    const value = this.#get(name);
    return typeof value === "boolean" ? value : undefined;
  }

  number(name: string): number | undefined {
    const value = this.#get(name);
    if (typeof value === "number" && Number.isFinite(value)) return value;
    const isText = typeof value === "string" && value.trim() !== "";
    return isText && Number.isFinite(Number(value)) ? Number(value) : undefined;
  }

  /** Whole, and within these limits. */
  integer(name: string, least: number, most: number): number | undefined {
    const value = this.number(name);
    return value === undefined ? undefined : Math.min(most, Math.max(least, Math.trunc(value)));
  }

  /** Words of a list, or of a text with commas. @throws GatewayError `invalid_definition` for more than `most` */
  words(name: string, most: number): readonly string[] {
    const value = this.#get(name);
    const list = Array.isArray(value) ? value : typeof value === "string" ? value.split(",") : [];
    const words = list.flatMap((word) => (typeof word === "string" && word.trim() !== "" ? [word.trim()] : []));
    if (words.length > most) throw refused(`${this.#path}${name}`, `lists ${words.length} words; ${most} are the most`);
    return words;
  }

  list(name: string): readonly JsonValue[] | undefined {
    const value = this.#get(name);
    return Array.isArray(value) ? value : undefined;
  }

  fields(name: string): ForeignFields {
    return new ForeignFields(this.#get(name), `${this.#path}${name}.`);
  }

  value(name: string): JsonValue | undefined {
    return this.#get(name);
  }

  #get(name: string): JsonValue | undefined {
    return this.has(name) ? this.#fields[name] : undefined;
  }
}

export function refused(param: string, why: string): GatewayError {
  return new GatewayError("invalid_definition", `${param}: ${why}.`, { param });
}
