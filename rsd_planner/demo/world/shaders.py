"""The few GLSL programs the world needs."""

WORLD_VERTEX = """
#version 330
uniform mat4 matrix;
uniform mat4 model;
in vec3 in_position;
in vec3 in_normal;
in vec3 in_colour;
in float in_glow;
out vec3 place;
out vec3 normal;
out vec3 colour;
out float glow;
void main() {
    vec4 world = model * vec4(in_position, 1.0);
    place = world.xyz;
    normal = mat3(model) * in_normal;
    colour = in_colour;
    glow = in_glow;
    gl_Position = matrix * world;
}
"""

WORLD_FRAGMENT = """
#version 330
uniform vec3 eye;
uniform vec3 forward;
uniform vec3 sun;
uniform vec3 sun_direction;
uniform vec3 ambient;
uniform vec3 haze;
uniform float fog;
uniform float headlight;
in vec3 place;
in vec3 normal;
in vec3 colour;
in float glow;
out vec4 result;
void main() {
    vec3 ray = place - eye;
    float far = length(ray);
    float lit = max(dot(normalize(normal), sun_direction), 0.0);
    float beam = headlight * smoothstep(0.80, 0.97, dot(ray / max(far, 0.01), forward)) * exp(-far / 26.0);
    vec3 light = ambient * (0.88 + 0.12 * normal.z) + sun * lit + vec3(beam);
    vec3 shaded = mix(colour * light, colour, glow);
    float clear = exp(-far * fog);
    result = vec4(mix(haze, shaded, mix(clear, sqrt(clear), glow)), 1.0);
}
"""

SKY_VERTEX = """
#version 330
uniform float horizon;
uniform vec3 low;
uniform vec3 high;
in vec2 in_corner;
out vec3 tint;
void main() {
    float share = clamp((in_corner.y - horizon) / 1.6, 0.0, 1.0);
    tint = mix(low, high, sqrt(share));
    gl_Position = vec4(in_corner, 0.999, 1.0);
}
"""

SKY_FRAGMENT = """
#version 330
in vec3 tint;
out vec4 result;
void main() { result = vec4(tint, 1.0); }
"""

GLARE_VERTEX = """
#version 330
uniform mat4 matrix;
in vec3 in_position;
in vec2 in_corner;
in vec4 in_colour;
out vec2 corner;
out vec4 colour;
void main() {
    corner = in_corner;
    colour = in_colour;
    gl_Position = matrix * vec4(in_position, 1.0);
}
"""

GLARE_FRAGMENT = """
#version 330
in vec2 corner;
in vec4 colour;
out vec4 result;
void main() {
    float fade = max(1.0 - length(corner), 0.0);
    result = vec4(colour.rgb, colour.a * fade * fade);
}
"""
