# SPDX-License-Identifier: Apache-2.0
"""Renders a conda recipe by rattler-build, as `rattler-build build` does before it builds; run by .venv's Python:

    render_recipe.py RECIPE PLATFORM

Prints what comes out as JSON. What rattler-build would refuse (unknown fields, wrong types, licences that SPDX does not
know, templates that do not evaluate) is an error here.
"""

import json
import sys

from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

recipe, platform = sys.argv[1:]
config = PlatformConfig(target_platform=platform, build_platform=platform, host_platform=platform)
rendered = Stage0Recipe.from_file(recipe).render(VariantConfig(), RenderConfig(platform=config))
json.dump([each.recipe.to_dict() for each in rendered], sys.stdout)
