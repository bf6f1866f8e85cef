import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeToolServiceRepo } from "./tool-services-repo.ts";

describeToolServiceRepo("file", twoInstancesOfFile);
describeToolServiceRepo("server", twoInstancesOfServer);
