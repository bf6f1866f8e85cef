"""A calculator as a synchronous VCP plugin: one JSON object in, one JSON object out.

The expression is read as a syntax tree and only what is listed here is computed, so that no
text that a model writes can become a program.
"""

import ast
import json
import math
import operator
import sys

BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
UNARY = {ast.UAdd: operator.pos, ast.USub: operator.neg}
CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
FUNCTIONS = {
    name: getattr(math, name)
    for name in ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "floor", "ceil", "factorial")
} | {"abs": abs, "round": round, "min": min, "max": max}

LONGEST = 1_000
LARGEST_POWER = 10_000
LARGEST_FACTORIAL = 1_000


def evaluate(node):
    if isinstance(node, ast.Expression):
        return evaluate(node.body)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.Name) and node.id in CONSTANTS:
        return CONSTANTS[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
        return UNARY[type(node.op)](evaluate(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        left, right = evaluate(node.left), evaluate(node.right)
        if isinstance(node.op, ast.Pow) and (abs(right) > LARGEST_POWER or abs(left) > 1e9):
            raise ValueError("the power is too large")
        return BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords:
        values = [evaluate(argument) for argument in node.args]
        if node.func.id == "factorial" and values and values[0] > LARGEST_FACTORIAL:
            raise ValueError("the factorial is too large")
        return FUNCTIONS[node.func.id](*values)
    raise ValueError("only numbers, operators, pi, e, tau and " + ", ".join(sorted(FUNCTIONS)) + " are understood")


def answer():
    arguments = json.loads(sys.stdin.read() or "{}")
    expression = str(arguments.get("expression", "")).strip()
    if expression == "":
        return {"status": "error", "error": "Give the 'expression' to compute, for example 1+2."}
    if len(expression) > LONGEST:
        return {"status": "error", "error": f"The expression has more than {LONGEST} characters."}
    try:
        return {"status": "success", "result": str(evaluate(ast.parse(expression, mode="eval")))}
    except (ValueError, TypeError, SyntaxError, ArithmeticError, RecursionError) as problem:
        return {"status": "error", "error": f"'{expression}' cannot be computed: {problem}"}


print(json.dumps(answer(), ensure_ascii=False))
