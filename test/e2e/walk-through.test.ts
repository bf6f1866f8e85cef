/** The walk through the product in the homes that need nothing but npm. */
import { homes } from "../support/homes.ts";
import { describeWalkThrough } from "./walk-through.ts";

describeWalkThrough(homes);
