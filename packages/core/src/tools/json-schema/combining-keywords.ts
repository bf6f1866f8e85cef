/** Keywords that apply other schemas to the same value. */
import type { JsonValue } from "../../json.ts";
import { ownMember } from "./document.ts";
import { ErrorList, type Frame } from "./run.ts";
import {
  type Check,
  type Rule,
  type Site,
  all,
  anything,
  fail,
  inPlace,
  ruleOf,
  rulesOf,
  scratch,
  silent,
  stringOf,
} from "./rule.ts";

export function referenceKeyword(value: JsonValue, site: Site): Check {
  const target = site.compiler.document.resolve(stringOf(value, site), site.resource, site.location);
  const rule = site.compiler.refer(target.schema, target.resource, site.location);
  return (given, frame) => inPlace(rule, given, frame);
}

export function allOfKeyword(value: JsonValue, site: Site): Check {
  return all(
    rulesOf(value, site).map(
      (rule): Check =>
        (given, frame) =>
          inPlace(rule, given, frame),
    ),
  );
}

export function anyOfKeyword(value: JsonValue, site: Site): Check {
  const rules = rulesOf(value, site);
  return (given, frame) => {
    const nearest = new Nearest(frame);
    let passes = false;
    for (const rule of rules) {
      const errors = nearest.attempt();
      if (!inPlace(rule, given, { ...frame, errors })) {
        nearest.failed(errors);
        continue;
      }
      passes = true;
      // Later branches matter only to those who ask what was evaluated.
      if (frame.evaluated === undefined) return true;
    }
    return passes || nearest.report(`fits none of its ${rules.length} alternatives`);
  };
}

export function oneOfKeyword(value: JsonValue, site: Site): Check {
  const rules = rulesOf(value, site);
  const check: Check = (given, frame) => {
    const nearest = new Nearest(frame);
    let fitting = 0;
    const evaluated = scratch(frame);
    for (const rule of rules) {
      const errors = nearest.attempt();
      if (inPlace(rule, given, { ...frame, evaluated, errors })) fitting += 1;
      else nearest.failed(errors);
    }
    // Digits that are a text to one and a number to the other are the text that they are.
    if (fitting > 1 && frame.longNumbers === true) return check(given, { ...frame, longNumbers: false });
    if (fitting > 1) return fail(frame, () => `fits ${fitting} of its alternatives; exactly one is allowed`);
    if (fitting === 0) return nearest.report(`fits none of its ${rules.length} alternatives`);
    if (evaluated !== undefined) frame.evaluated?.merge(evaluated, frame.budget);
    return true;
  };
  return check;
}

/** The alternative that came closest, whose errors help most; of equal ones the first. */
class Nearest {
  readonly #frame: Frame;
  #best: ErrorList | undefined;

  constructor(frame: Frame) {
    this.#frame = frame;
  }

  attempt(): ErrorList | undefined {
    if (this.#frame.errors === undefined) return undefined;
    this.#frame.budget.spend(1);
    return new ErrorList();
  }

  failed(attempt: ErrorList | undefined): void {
    if (attempt === undefined) return;
    const best = this.#best;
    if (
      best === undefined ||
      attempt.depth > best.depth ||
      (attempt.depth === best.depth && attempt.count < best.count)
    ) {
      this.#best = attempt;
    }
  }

  report(summary: string): false {
    const best = this.#best;
    fail(
      this.#frame,
      best === undefined || best.count === 0 ? summary : `${summary}; the nearest one has the errors that follow`,
    );
    if (best !== undefined) this.#frame.errors?.addAll(best);
    return false;
  }
}

export function notKeyword(value: JsonValue, site: Site): Check {
  const rule = ruleOf(value, site);
  return (given, frame) =>
    !inPlace(rule, given, { ...frame, evaluated: scratch(frame), errors: undefined }) ||
    fail(frame, "has a form that is ruled out ('not')");
}

export function ifKeyword(value: JsonValue, site: Site): Check {
  const condition = ruleOf(value, site);
  const branch = (keyword: string): Rule => {
    const schema = ownMember(site.schema, keyword);
    return schema === undefined ? anything : site.compiler.refer(schema, site.resource, site.location);
  };
  const then = branch("then");
  const otherwise = branch("else");
  return (given, frame) => inPlace(inPlace(condition, given, silent(frame)) ? then : otherwise, given, frame);
}
